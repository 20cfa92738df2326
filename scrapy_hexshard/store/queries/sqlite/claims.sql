-- name: before_claim
-- The stored time, and whether the worker holds a suspect.
SELECT now, EXISTS (SELECT 1 FROM busy WHERE lone = 1 AND worker = ?) FROM sequence;

-- name: due_retries
SELECT id, shard, rank, attempts, deaths, lone_deaths, error, worker, 0
FROM busy
WHERE shard = :shard AND state = 3 AND at <= :now
ORDER BY at
LIMIT :limit;

-- name: left_behind
SELECT id, shard, rank, attempts, deaths, lone_deaths, error, worker, died_alone
FROM orphaned
WHERE shard = :shard AND worker = :worker;

-- name: lapsed
SELECT orphaned.rank, orphaned.id, orphaned.attempts, orphaned.deaths, orphaned.lone_deaths,
  keys.key, keys.payload
FROM orphaned JOIN keys ON keys.id = orphaned.id
WHERE orphaned.shard = :shard AND orphaned.at <= :now AND orphaned.worker <> :worker
ORDER BY orphaned.rank, orphaned.id
LIMIT :limit;

-- name: lapsed_apart
-- Those among the lapsed that the claiming worker must not get in passing.
SELECT id, shard, rank, attempts, deaths, lone_deaths, error, worker, died_alone
FROM orphaned
WHERE shard = :shard AND at <= :now AND worker <> :worker
  AND (deaths >= :max_deaths OR (died_alone AND lone_deaths >= :max_lone_deaths));

-- name: ready
SELECT ready.rank, ready.id, ready.attempts, ready.deaths, ready.lone_deaths,
  keys.key, keys.payload
FROM ready JOIN keys ON keys.id = ready.id
WHERE ready.shard = :shard
ORDER BY ready.rank, ready.id
LIMIT :limit;

-- name: take_ready
DELETE FROM ready WHERE shard = :shard AND (rank, id) <= (:rank, :id);

-- name: take_tokens
UPDATE sequence SET token = token + :n, now = max(now, :now) RETURNING token;

-- name: lease_ready
INSERT INTO busy (id, shard, state, at, token, worker, rank, attempts, deaths, lone_deaths, error)
SELECT id, shard, 1, :until, :base + id, :worker, rank,
  attempts, deaths, lone_deaths, error
FROM ready
WHERE shard = :shard AND (rank, id) <= (:rank, :id);

-- name: lease_lapsed
UPDATE busy SET at = ?, token = ?, worker = ?, deaths = ?, lone_deaths = ?, lone = 0, parked = 0
WHERE id = ?;

-- name: next_suspect
SELECT suspects.rank, suspects.id, suspects.attempts, keys.key, keys.payload
FROM suspects JOIN keys ON keys.id = suspects.id
WHERE suspects.shard = :shard
  AND NOT EXISTS (SELECT 1 FROM busy
    WHERE shard = :shard AND state = 1 AND worker = :worker AND NOT parked)
ORDER BY suspects.tried, suspects.rank, suspects.id
LIMIT 1;

-- name: lease_suspect
INSERT INTO busy (id, shard, state, at, token, worker, rank,
  attempts, deaths, lone_deaths, lone, error)
SELECT id, shard, 1, :until, :token, :worker, rank, attempts, deaths, lone_deaths, 1, error
FROM suspects
WHERE id = :id;

-- name: take_suspect
DELETE FROM suspects WHERE id = ?;

-- name: leave_busy
DELETE FROM busy WHERE id = ?;

-- name: return_ready
INSERT INTO ready (id, shard, rank, attempts, deaths, lone_deaths, error)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: return_suspect
INSERT INTO suspects (id, shard, rank, attempts, deaths, lone_deaths, error, tried)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: condemn
INSERT INTO dead (id, shard, attempts, deaths, lone_deaths, worker, at, outcome, text)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: key
SELECT key FROM keys WHERE id = ?;

-- name: park
UPDATE busy SET parked = 1, lone = 0 WHERE id IN (SELECT value FROM json_each(?));

-- name: renew
UPDATE busy SET at = max(at, :until) WHERE id IN (SELECT value FROM json_each(:ids));

-- name: due_retries
SELECT id, shard, rank, attempts, deaths, lone_deaths, error
FROM busy
WHERE shard = :shard AND state = 3 AND at <= :now
ORDER BY at
LIMIT :limit;

-- name: left_behind
-- What a worker that is no more held, with one death more unless it had been told to stop.
SELECT busy.id, busy.shard, busy.rank, busy.attempts,
  busy.deaths + (workers.stopping IS NULL),
  busy.lone_deaths + (busy.lone AND workers.stopping IS NULL),
  busy.error
FROM busy JOIN workers ON workers.id = busy.worker
WHERE busy.shard = :shard AND busy.state = 1 AND busy.worker = :worker;

-- name: lapsed
SELECT busy.rank, busy.id, busy.attempts,
  busy.deaths + (workers.stopping IS NULL),
  busy.lone_deaths + (busy.lone AND workers.stopping IS NULL),
  keys.key, keys.payload
FROM busy JOIN workers ON workers.id = busy.worker JOIN keys ON keys.id = busy.id
WHERE busy.shard = :shard AND busy.state = 1 AND busy.at <= :now AND busy.worker <> :worker
ORDER BY busy.rank, busy.id
LIMIT :limit;

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
UPDATE busy SET at = ?, token = ?, worker = ?, deaths = ?, lone_deaths = ?, lone = 0 WHERE id = ?;

-- name: leave_busy
DELETE FROM busy WHERE id = ?;

-- name: return_ready
INSERT INTO ready (id, shard, rank, attempts, deaths, lone_deaths, error)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: renew
UPDATE busy SET at = max(at, :until) WHERE id IN (SELECT value FROM json_each(:ids));

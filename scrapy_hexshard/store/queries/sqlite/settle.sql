-- name: running
SELECT busy.id, token, shard, attempts, deaths
FROM json_each(?) AS asked CROSS JOIN busy ON busy.id = asked.value
WHERE state = 1;

-- name: held_together
-- How many of the keys are leased by one and the same claim, and for which shards.
SELECT count(*), min(shard), max(shard)
FROM json_each(:ids) AS asked CROSS JOIN busy ON busy.id = asked.value
WHERE state = 1 AND token - busy.id = :base;

-- name: finish
INSERT INTO done (id, at, outcome, attempt, worker, text)
SELECT busy.id, :now, :outcome, attempts + 1, worker, :text
FROM json_each(:ids) AS asked CROSS JOIN busy ON busy.id = asked.value;

-- name: bury
INSERT INTO dead (id, shard, at, outcome, attempts, deaths, lone_deaths, worker, text)
SELECT id, shard, ?, ?, attempts + 1, deaths, lone_deaths, worker, ?
FROM busy
WHERE id = ?;

-- name: give_back
INSERT INTO ready (shard, rank, id, attempts, deaths, lone_deaths, error)
SELECT shard, rank, busy.id, attempts, deaths, lone_deaths, error
FROM json_each(:ids) AS asked CROSS JOIN busy ON busy.id = asked.value;

-- name: give_back_suspect
INSERT INTO suspects (shard, tried, rank, id, attempts, deaths, lone_deaths, error)
SELECT shard, :now, rank, busy.id, attempts, deaths, lone_deaths, error
FROM json_each(:ids) AS asked CROSS JOIN busy ON busy.id = asked.value;

-- name: leave_running
DELETE FROM busy WHERE id IN (SELECT value FROM json_each(?)) AND state = 1;

-- name: add_item
INSERT INTO items (key, item) VALUES (?, ?);

-- name: retry_later
UPDATE busy SET state = 3, at = ?, attempts = ?, lone = 0, error = ? WHERE id = ?;

-- name: outcome_id
SELECT id FROM outcomes WHERE outcome = ?;

-- name: outcome_kinds
SELECT count(*) FROM outcomes;

-- name: add_outcome
INSERT INTO outcomes (outcome) VALUES (?) RETURNING id;

-- name: count_outcome
UPDATE outcomes SET n = n + ? WHERE id = ?;

-- name: count
UPDATE counts SET pending = pending + ?, running = running + ?, done = done + ?,
  failed = failed + ?, dead = dead + ?
WHERE shard = ?;

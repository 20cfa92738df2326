-- name: add_worker
INSERT INTO workers (shard, boot, machine, namespace, pid, born, started, heartbeat)
VALUES (:shard, :boot, :machine, :namespace, :pid, :born, :now, :now)
RETURNING id;

-- name: holders
SELECT id, boot, machine, namespace, pid, born
FROM workers
WHERE id <> :worker
  AND id IN (SELECT worker FROM busy WHERE shard = :shard AND state = 1);

-- name: companions
SELECT boot, machine, namespace, pid, born
FROM workers
WHERE shard = :shard AND id <> :worker AND ended IS NULL AND heartbeat >= :since;

-- name: beat
UPDATE workers SET heartbeat = :now WHERE id = :worker;

-- name: stop
UPDATE workers SET heartbeat = :now, stopping = coalesce(stopping, :now) WHERE id = :worker;

-- name: end
UPDATE workers
SET heartbeat = :now, stopping = coalesce(stopping, :now), ended = :now, reason = :reason
WHERE id = :worker;

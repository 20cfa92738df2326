-- name: now
SELECT now FROM sequence;

-- name: set_now
UPDATE sequence SET now = ? WHERE now < ?;

-- name: counts
SELECT pending, running, done, failed, dead FROM counts WHERE shard = ?;

-- name: total
SELECT sum(pending), sum(running), sum(done), sum(failed), sum(dead) FROM counts;

-- name: shard_counts
SELECT shard, pending, running, done, failed, dead FROM counts ORDER BY shard;

-- name: outcomes
SELECT outcome, n FROM outcomes WHERE n > 0 ORDER BY n DESC, outcome;

-- name: open_work
SELECT pending, running, failed,
  (SELECT now FROM sequence),
  EXISTS (SELECT 1 FROM ready WHERE shard = :shard),
  (SELECT at FROM busy WHERE shard = :shard AND state = 3 ORDER BY at LIMIT 1),
  (SELECT at FROM busy WHERE shard = :shard AND state = 1 AND worker <> :worker
   ORDER BY at LIMIT 1),
  (SELECT at FROM busy WHERE shard = :shard AND state = 1 AND worker = :worker
   ORDER BY at LIMIT 1),
  EXISTS (SELECT 1 FROM busy
    WHERE shard = :shard AND state = 1 AND worker = :worker AND NOT parked),
  EXISTS (SELECT 1 FROM busy WHERE lone = 1 AND worker = :worker),
  (SELECT count(*) FROM busy WHERE shard = :shard AND state = 1 AND parked)
FROM counts
WHERE shard = :shard;

-- name: open_shards
SELECT shard, pending + running + failed,
  (SELECT max(heartbeat) FROM workers
   WHERE workers.shard = counts.shard AND reason IS NOT 'finished'),
  (SELECT now FROM sequence)
FROM counts
WHERE pending + running + failed > 0
ORDER BY shard;

-- name: items
SELECT id, item FROM items WHERE id > ? ORDER BY id LIMIT ?;

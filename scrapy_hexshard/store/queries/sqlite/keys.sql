-- name: last_key
SELECT coalesce(max(id), 0) FROM keys;

-- name: add_key
INSERT INTO keys (digest, key, payload, priority) VALUES (?, ?, ?, ?)
ON CONFLICT (digest) DO NOTHING;

-- name: keys_added
SELECT id, digest FROM keys WHERE id > ? ORDER BY id;

-- name: add_ready
INSERT INTO ready (shard, rank, id) VALUES (?, ?, ?);

-- name: known_key
-- A known key that a second Work might change: it has a payload, or a higher priority.
SELECT id, priority FROM keys
WHERE digest = :digest AND (:payload IS NOT NULL OR priority < :priority);

-- name: raise_ready
UPDATE ready SET rank = :rank WHERE shard = :shard AND rank = :old_rank AND id = :id;

-- name: raise_suspect
UPDATE suspects SET rank = :rank WHERE id = :id;

-- name: raise_failed
UPDATE busy SET rank = :rank WHERE id = :id AND state = 3;

-- name: change_key
UPDATE keys SET payload = coalesce(:payload, payload), priority = -:rank WHERE id = :id;

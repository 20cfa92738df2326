-- One crawl. Each key is in exactly one of ready and suspects (pending), busy (running, or failed
-- and waiting), done and dead. Times are milliseconds since 1970. "rank" is the negated priority:
-- lowest first.

-- name: schema
CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sequence (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  token INTEGER NOT NULL,
  now INTEGER NOT NULL
) STRICT;

CREATE TABLE keys (
  id INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 16),
  key TEXT NOT NULL,
  payload TEXT,
  priority INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE ready (
  shard INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  id INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  deaths INTEGER NOT NULL DEFAULT 0,
  lone_deaths INTEGER NOT NULL DEFAULT 0,
  error TEXT,
  PRIMARY KEY (shard, rank, id)
) STRICT, WITHOUT ROWID;

-- Apart from the ready keys, whose range a claim takes as a whole.
CREATE TABLE suspects (
  id INTEGER PRIMARY KEY,
  shard INTEGER NOT NULL,
  tried INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  deaths INTEGER NOT NULL,
  lone_deaths INTEGER NOT NULL,
  error TEXT
) STRICT;

CREATE INDEX suspects_tried ON suspects (shard, tried, rank);

CREATE TABLE busy (
  id INTEGER PRIMARY KEY,
  shard INTEGER NOT NULL,
  state INTEGER NOT NULL CHECK (state IN (1, 3)),
  at INTEGER NOT NULL,
  token INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  deaths INTEGER NOT NULL,
  lone_deaths INTEGER NOT NULL,
  lone INTEGER NOT NULL DEFAULT 0,
  parked INTEGER NOT NULL DEFAULT 0,
  error TEXT
) STRICT;

CREATE INDEX busy_at ON busy (shard, state, at);

CREATE INDEX busy_lone ON busy (worker) WHERE lone = 1;

CREATE TABLE done (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  outcome INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  text TEXT
) STRICT;

CREATE TABLE dead (
  id INTEGER PRIMARY KEY,
  shard INTEGER NOT NULL,
  at INTEGER NOT NULL,
  outcome INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  deaths INTEGER NOT NULL,
  lone_deaths INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  text TEXT
) STRICT;

CREATE TABLE items (
  id INTEGER PRIMARY KEY,
  key INTEGER NOT NULL,
  item TEXT NOT NULL
) STRICT;

CREATE TABLE outcomes (
  id INTEGER PRIMARY KEY,
  outcome TEXT NOT NULL UNIQUE,
  n INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE counts (
  shard INTEGER PRIMARY KEY,
  pending INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0),
  running INTEGER NOT NULL DEFAULT 0 CHECK (running >= 0),
  done INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0),
  failed INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0),
  dead INTEGER NOT NULL DEFAULT 0 CHECK (dead >= 0)
) STRICT;

CREATE TABLE workers (
  id INTEGER PRIMARY KEY,
  shard INTEGER NOT NULL,
  boot TEXT,
  machine TEXT,
  namespace TEXT,
  pid INTEGER NOT NULL,
  born INTEGER,
  started INTEGER NOT NULL,
  heartbeat INTEGER NOT NULL,
  stopping INTEGER,
  ended INTEGER,
  reason TEXT
) STRICT;

-- What each running key would be without its worker: one death older, unless it was parked or that
-- was told to stop.
CREATE VIEW orphaned AS
SELECT busy.id, busy.shard, busy.at, busy.worker, busy.rank, busy.attempts,
  busy.deaths + (workers.stopping IS NULL AND NOT busy.parked) AS deaths,
  busy.lone_deaths + (busy.lone AND workers.stopping IS NULL) AS lone_deaths,
  busy.lone AND workers.stopping IS NULL AS died_alone,
  busy.error
FROM busy JOIN workers ON workers.id = busy.worker
WHERE busy.state = 1;

-- name: first_sequence
INSERT INTO sequence (one, token, now) VALUES (1, 0, 0);

-- name: first_counts
WITH RECURSIVE shards (shard) AS (
  SELECT 0 UNION ALL SELECT shard + 1 FROM shards WHERE shard + 1 < ?
)
INSERT INTO counts (shard) SELECT shard FROM shards;

-- name: is_created
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta';

-- name: meta
SELECT name, value FROM meta;

-- name: set_meta
INSERT INTO meta (name, value) VALUES (?, ?);

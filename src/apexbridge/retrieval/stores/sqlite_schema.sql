CREATE TABLE embedders (
  embedder TEXT PRIMARY KEY, epoch TEXT NOT NULL, sequence INTEGER NOT NULL, used INTEGER NOT NULL
);
CREATE TABLE entries (
  embedder TEXT NOT NULL, sequence INTEGER NOT NULL, name TEXT NOT NULL, fingerprint TEXT NOT NULL,
  texts BLOB NOT NULL, rows INTEGER NOT NULL, dimensions INTEGER NOT NULL, width INTEGER NOT NULL,
  vectors BLOB NOT NULL, terms BLOB NOT NULL, counts BLOB NOT NULL, checksum INTEGER NOT NULL,
  kind TEXT NOT NULL DEFAULT 'skill',
  PRIMARY KEY (embedder, name)
);
CREATE INDEX entries_by_sequence ON entries (embedder, sequence);
CREATE TABLE gone (
  embedder TEXT NOT NULL, name TEXT NOT NULL, sequence INTEGER NOT NULL,
  PRIMARY KEY (embedder, name)
) WITHOUT ROWID;

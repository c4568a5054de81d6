-- Migration 4 for SQLite: what schedules do, which rows were handed over, and all that operators have decided.
--
-- All of it is for people. Of schedules that have not been started since nothing is known.

ALTER TABLE schedules ADD COLUMN pool TEXT;
ALTER TABLE schedules ADD COLUMN request_type TEXT;
ALTER TABLE schedules ADD COLUMN cron TEXT;
ALTER TABLE schedules ADD COLUMN time_zone TEXT;
ALTER TABLE schedules ADD COLUMN period INTEGER CHECK (period > 0);
ALTER TABLE schedules ADD COLUMN overlap INTEGER CHECK (overlap IN (0, 1));
ALTER TABLE schedules ADD COLUMN catch_up INTEGER CHECK (catch_up >= 0);

-- A signal that nobody has received stands in the next segment, too.
ALTER TABLE journal ADD COLUMN handed_over INTEGER NOT NULL DEFAULT 0;

ALTER TABLE operations ADD COLUMN decisions TEXT NOT NULL DEFAULT '[]';

-- Migration 4 for PostgreSQL: what schedules do, which rows were handed over, and all that operators have decided.
--
-- All of it is for people. Of schedules that have not been started since nothing is known.

ALTER TABLE schedules ADD COLUMN pool text COLLATE "C";
ALTER TABLE schedules ADD COLUMN request_type text COLLATE "C";
ALTER TABLE schedules ADD COLUMN cron text;
ALTER TABLE schedules ADD COLUMN time_zone text;
ALTER TABLE schedules ADD COLUMN period bigint CHECK (period > 0);
ALTER TABLE schedules ADD COLUMN overlap boolean;
ALTER TABLE schedules ADD COLUMN catch_up bigint CHECK (catch_up >= 0);

-- A signal that nobody has received stands in the next segment, too.
ALTER TABLE journal ADD COLUMN handed_over boolean NOT NULL DEFAULT false;

ALTER TABLE operations ADD COLUMN decisions text NOT NULL DEFAULT '[]';

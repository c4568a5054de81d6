-- Migration 4 for PostgreSQL: what schedules do, for people. Those that have not been started since say nothing.

ALTER TABLE schedules ADD COLUMN pool text COLLATE "C";
ALTER TABLE schedules ADD COLUMN request_type text COLLATE "C";
ALTER TABLE schedules ADD COLUMN cron text;
ALTER TABLE schedules ADD COLUMN time_zone text;
ALTER TABLE schedules ADD COLUMN period bigint CHECK (period > 0);
ALTER TABLE schedules ADD COLUMN overlap boolean;
ALTER TABLE schedules ADD COLUMN catch_up bigint CHECK (catch_up >= 0);

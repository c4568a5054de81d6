-- Migration 4 for SQLite: what schedules do, for people. Those that have not been started since say nothing.

ALTER TABLE schedules ADD COLUMN pool TEXT;
ALTER TABLE schedules ADD COLUMN request_type TEXT;
ALTER TABLE schedules ADD COLUMN cron TEXT;
ALTER TABLE schedules ADD COLUMN time_zone TEXT;
ALTER TABLE schedules ADD COLUMN period INTEGER CHECK (period > 0);
ALTER TABLE schedules ADD COLUMN overlap INTEGER CHECK (overlap IN (0, 1));
ALTER TABLE schedules ADD COLUMN catch_up INTEGER CHECK (catch_up >= 0);

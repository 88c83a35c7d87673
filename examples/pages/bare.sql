-- What bare.lrp shows, for MariaDB, MySQL, PostgreSQL and SQLite. The pages are 211, 10,217 and
-- 19,248 bytes long: the sizes of the pages that the bare PC server made from a database.
CREATE TABLE bare (size INTEGER NOT NULL, line INTEGER NOT NULL, text VARCHAR(40) NOT NULL, PRIMARY KEY (size, line));
INSERT INTO bare (size, line, text) VALUES (211, 1, 'bare metal!');
INSERT INTO bare (size, line, text)
    WITH RECURSIVE counted (line) AS (SELECT 1 UNION ALL SELECT line + 1 FROM counted WHERE line < 333)
    SELECT 10217, line, 'bare metal!' FROM counted;
INSERT INTO bare (size, line, text) VALUES (10217, 334, 'and an end of 27 characters');
INSERT INTO bare (size, line, text)
    WITH RECURSIVE counted (line) AS (SELECT 1 UNION ALL SELECT line + 1 FROM counted WHERE line < 634)
    SELECT 19248, line, 'bare metal!' FROM counted;
INSERT INTO bare (size, line, text) VALUES (19248, 635, 'and an end of 28 characters.');

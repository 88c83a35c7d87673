-- The data base of page.php: one row for each page of paper 003. The small one's data has the
-- paper's 11 bytes; the frame around it is 200 bytes, and the others are as long as makes their
-- pages 10217 and 19248. Can be loaded again.
CREATE DATABASE IF NOT EXISTS lowroad_lab CHARACTER SET latin1;
CREATE USER IF NOT EXISTS 'lowroad_lab'@'localhost' IDENTIFIED BY 'lowroad_lab';
CREATE USER IF NOT EXISTS 'lowroad_lab'@'127.0.0.1' IDENTIFIED BY 'lowroad_lab';
GRANT SELECT ON lowroad_lab.* TO 'lowroad_lab'@'localhost';
GRANT SELECT ON lowroad_lab.* TO 'lowroad_lab'@'127.0.0.1';
USE lowroad_lab;
CREATE TABLE IF NOT EXISTS pages (
    name VARCHAR(16) NOT NULL PRIMARY KEY,
    data MEDIUMTEXT NOT NULL
) ENGINE = InnoDB;
REPLACE INTO pages (name, data) VALUES
    ('small', 'hello world'),
    ('medium', LEFT(REPEAT('hello world ', 900), 10017)),
    ('large', LEFT(REPEAT('hello world ', 1600), 19048));

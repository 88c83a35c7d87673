<?php
/*
 * Paper 003's dynamic page: a new connection to the data base for every request, one row, and a
 * page of exactly 211, 10217 or 19248 bytes around it. The tables are in schema.sql.
 *
 * LAB_DB (a FastCGI parameter or an environment variable) says where the data base is: the path of a
 * Unix socket, or HOST or HOST:PORT. LAB_DB_USER, LAB_DB_PASSWORD and LAB_DB_NAME are optional.
 */
declare(strict_types=1);

/** Bytes of the page without the data. */
const FRAME = 200;

main();

function main(): void
{
    $set = $_GET['set'] ?? 'small';
    if (!in_array($set, ['small', 'medium', 'large'], true)) {
        fail(400, 'set is small, medium or large.');
        return;
    }
    try {
        $data = row($set);
    } catch (mysqli_sql_exception $why) {
        fail(500, 'The data base: ' . $why->getMessage());
        return;
    }
    if ($data === null) {
        fail(500, "The data base has no row $set; load schema.sql.");
        return;
    }
    $page = page($set, $data);
    header('Content-Type: text/html');
    header('Content-Length: ' . strlen($page));
    echo $page;
}

function row(string $set): ?string
{
    mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
    $where = setting('LAB_DB', 'localhost');
    $socket = str_starts_with($where, '/') ? $where : null;
    [$host, $port] = explode(':', $socket === null ? $where : 'localhost') + [1 => '3306'];
    $base = new mysqli(
        $host,
        setting('LAB_DB_USER', 'lowroad_lab'),
        setting('LAB_DB_PASSWORD', 'lowroad_lab'),
        setting('LAB_DB_NAME', 'lowroad_lab'),
        (int) $port,
        $socket
    );
    $data = $base->query("SELECT data FROM pages WHERE name = '$set'")->fetch_row()[0] ?? null;
    $base->close();
    return $data;
}

function setting(string $name, string $default): string
{
    $value = $_SERVER[$name] ?? getenv($name);
    return is_string($value) && $value !== '' ? $value : $default;
}

/** The frame is filled up in a comment, so that the length is that of the data and FRAME. */
function page(string $set, string $data): string
{
    $head = "<html>\n<head><title>A dynamic page</title></head>\n<body>\n<p>Data set: $set\n<pre>\n";
    $tail = "\n</pre>\n<!--";
    $end = "-->\n</body></html>\n";
    $fill = str_repeat('.', FRAME - strlen($head . $tail . $end));
    return $head . $data . $tail . $fill . $end;
}

function fail(int $status, string $why): void
{
    http_response_code($status);
    header('Content-Type: text/plain');
    echo $why, "\n";
}

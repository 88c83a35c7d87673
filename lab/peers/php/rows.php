<?php
/*
 * The page of examples/pages/www/bare.lrp in PHP, byte for byte: as many rows of the table bare
 * (examples/pages/bare.sql) as make it 211, 10217 or 19248 bytes long. size says which; with keep=1
 * the connection to the data base outlives the page.
 *
 * LAB_DB is HOST:PORT of the data base, whose account is that of schema.sql. It is asked by PDO, since
 * mysqli sets up a connection that is kept anew for each page.
 */
declare(strict_types=1);

main();

function main(): void
{
    $size = (int) ($_GET['size'] ?? 211);
    try {
        $page = page(rows($size, ($_GET['keep'] ?? '') === '1'));
    } catch (PDOException $why) {
        http_response_code(500);
        $page = 'The data base: ' . $why->getMessage() . "\n";
    }
    header('Content-Type: text/html; charset=utf-8');
    header('Content-Length: ' . strlen($page));
    echo $page;
}

function rows(int $size, bool $is_kept): array
{
    [$host, $port] = explode(':', $_SERVER['LAB_DB']) + [1 => '3306'];
    $name = "mysql:host=$host;port=$port;dbname=lowroad_lab";
    $kept = [PDO::ATTR_PERSISTENT => $is_kept];
    $base = new PDO($name, 'lowroad_lab', 'lowroad_lab', $kept);
    $rows = $base->query("SELECT text FROM bare WHERE size = $size ORDER BY line");
    return $rows->fetchAll(PDO::FETCH_NUM);
}

function page(array $rows): string
{
    $page = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Bare</title></head>\n"
        . "<body><h1>From the database</h1><table>\n";
    foreach ($rows as [$text]) {
        $page .= '<tr><td>' . htmlspecialchars($text) . "</td></tr>\n";
    }
    return $page . '</table><p>A page of a bare machine.</p></body></html>';
}

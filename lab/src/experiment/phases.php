<?php
/*
 * Paper 003, figures 15 and 16: how long the phases of talking to the data base take, in plain text,
 * a line for each. It is asked now and then while page.php is under load, and speaks to the data
 * base as page.php does. The handshake is that of a connection of its own, since the library does
 * not tell it apart from the greeting and the password.
 */

declare(strict_types=1);

const SETS = ['small', 'medium', 'large'];

function setting(string $name, string $default): string
{
    $value = $_SERVER[$name] ?? getenv($name);
    return is_string($value) && $value !== '' ? $value : $default;
}

/** Runs a step; gives what it returned and adds its time. */
function timed(array &$times, string $name, callable $step): mixed
{
    $began = hrtime(true);
    $result = $step();
    $times[$name] = (hrtime(true) - $began) / 1000;
    return $result;
}

function phases(string $set): array
{
    mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
    $where = setting('LAB_DB', 'localhost');
    $socket = str_starts_with($where, '/') ? $where : null;
    [$host, $port] = explode(':', $socket === null ? $where : 'localhost') + [1 => '3306'];
    $remote = $socket === null ? "tcp://$host:$port" : "unix://$socket";
    $times = [];
    $plain = timed($times, 'handshake_us', fn () => stream_socket_client($remote, timeout: 2));
    fclose($plain);
    $base = timed($times, 'database_connect_us', fn () => new mysqli(
        $host,
        setting('LAB_DB_USER', 'lowroad_lab'),
        setting('LAB_DB_PASSWORD', 'lowroad_lab'),
        setting('LAB_DB_NAME', 'lowroad_lab'),
        (int) $port,
        $socket
    ));
    $ask = fn () => $base->query("SELECT data FROM pages WHERE name = '$set'")->fetch_row();
    timed($times, 'tabular_us', $ask);
    timed($times, 'disconnect_us', fn () => $base->close());
    return $times;
}

header('Content-Type: text/plain');
$set = $_GET['set'] ?? 'small';
if (!in_array($set, SETS, true)) {
    http_response_code(404);
    exit("no such set\n");
}
try {
    foreach (phases($set) as $name => $time) {
        printf("%s %.1f\n", $name, $time);
    }
} catch (mysqli_sql_exception $why) {
    http_response_code(500);
    echo 'The data base: ', $why->getMessage(), "\n";
}

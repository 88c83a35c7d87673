<?php
/*
 * The server's side of SPECweb99-like dynamic requests: a page around a file, with an ad for the
 * user that a cookie names, and forms that are logged. Written for PHP under FastCGI; each request
 * reads its data anew, as another one may just have reset it.
 *
 * The data folder (User.Personality, Custom.Ads, post.log) is SPECWEB99_DATA, a FastCGI parameter or
 * an environment variable; files come from the document root.
 */
declare(strict_types=1);

const ADS = 360;
const AD_RECORD = 39;
const USER_RECORD = 15;
const LOG_HEAD = 11;
const LOG_RECORD = 139;
const FIRST_USER = 10000;

/** An answer that is no page: a status and what is wrong. */
final class Refusal extends Exception
{
}

main();

function main(): void
{
    $headers = [];
    $status = 200;
    try {
        $content = content($headers);
    } catch (Refusal $refusal) {
        $status = $refusal->getCode();
        $content = $refusal->getMessage();
    }
    $page = page($content);
    http_response_code($status);
    header('Content-Type: text/html');
    header('Content-Length: ' . strlen($page));
    foreach ($headers as $field) {
        header($field);
    }
    echo $page;
}

/** What stands between the wrapper's lines; adds fields for the head. */
function content(array &$headers): string
{
    if ($_SERVER['REQUEST_METHOD'] === 'POST') {
        return post($headers);
    }
    $query = $_SERVER['QUERY_STRING'] ?? '';
    if (str_starts_with($query, 'command/Reset')) {
        reset_data($query);
        return '';
    }
    if ($query === 'command/Fetch') {
        return fetch_log();
    }
    if (!preg_match('~^(/?(?:[\w.\-]+/)*)dir(\d{5})/class([0-3])_([0-8])$~D', $query, $name)) {
        throw new Refusal('The query is no file of the set, no command/Reset and no command/Fetch.', 400);
    }
    $class = (int) $name[3];
    $file = file_of_site($query);
    $user = user();
    if ($user === null) {
        return $file;
    }
    [$ad, $weight, $expired] = choose_ad(...$user);
    $headers[] = "Set-Cookie: found_cookie=Ad_id=$ad&Ad_weight=$weight&Expired=$expired";
    return ($class === 1 || $class === 2) && $ad >= 0 ? put_ad($file, $ad) : $file;
}

function page(string $content): string
{
    // A query is the client's: it must not become HTML.
    $shown = fn (string $key): string => htmlspecialchars((string) ($_SERVER[$key] ?? ''), ENT_NOQUOTES | ENT_SUBSTITUTE);
    return "<html>\n<head><title>SPECweb99 Dynamic GET & POST Test</title></head>\n<body>\n"
        . '<p>SERVER_SOFTWARE = ' . $shown('SERVER_SOFTWARE') . "\n"
        . '<p>REMOTE_ADDR = ' . $shown('REMOTE_ADDR') . "\n"
        . '<p>SCRIPT_NAME = ' . $shown('SCRIPT_NAME') . "\n"
        . '<p>QUERY_STRING = ' . $shown('QUERY_STRING') . "\n"
        . "<pre>\n" . $content . "\n</pre>\n</body></html>\n";
}

/** The bytes of a file whose name was found to be one of the set. */
function file_of_site(string $path): string
{
    if (str_contains($path, '..')) {
        throw new Refusal('No such file.', 404);
    }
    $file = @file_get_contents($_SERVER['DOCUMENT_ROOT'] . '/' . ltrim($path, '/'));
    if ($file === false) {
        throw new Refusal('No such file.', 404);
    }
    return $file;
}

function data(string $name): string
{
    $folder = $_SERVER['SPECWEB99_DATA'] ?? getenv('SPECWEB99_DATA');
    if (!is_string($folder) || $folder === '') {
        throw new Refusal('SPECWEB99_DATA is not set: it names the folder with Custom.Ads.', 500);
    }
    return "$folder/$name";
}

/** User and last ad from the cookie, if there is one. */
function user(): ?array
{
    $cookie = $_SERVER['HTTP_COOKIE'] ?? '';
    if (!preg_match('~\bmy_cookie=user_id=(\d{1,9})&last_ad=(\d{1,9})~', $cookie, $found)) {
        return null;
    }
    return [(int) $found[1], (int) $found[2]];
}

/**
 * The next ad after the last one that fits the user well enough: its number, its weight for the
 * user, and whether its time is over.
 */
function choose_ad(int $user, int $last_ad): array
{
    $wishes = wishes($user);
    if ($wishes === null) {
        return [-1, 0, 1];
    }
    $ads = @file_get_contents(data('Custom.Ads'));
    if ($ads === false || strlen($ads) !== ADS * AD_RECORD) {
        throw new Refusal('Custom.Ads is missing or broken.', 500);
    }
    $last_ad %= ADS;
    $ad = $last_ad;
    do {
        $ad = ($ad + 1) % ADS;
        $at = $ad * AD_RECORD;
        $common = $wishes & hexdec(trim(substr($ads, $at + 6, 8)));
        $weight = weight($common, hexdec(trim(substr($ads, $at + 15, 8))));
    } while ($weight < (int) substr($ads, $at + 24, 3) && $ad !== $last_ad);
    $expires = (int) substr($ads, $at + 28, 10);
    return [$ad, $weight, time() <= $expires ? 0 : 1];
}

/** What a user looks for, or null if nobody knows. */
function wishes(int $user): ?int
{
    $index = $user - FIRST_USER;
    $file = $index < 0 ? false : @fopen(data('User.Personality'), 'rb');
    if ($file === false) {
        return null;
    }
    fseek($file, $index * USER_RECORD);
    $record = fread($file, USER_RECORD);
    fclose($file);
    return strlen((string) $record) === USER_RECORD ? (int) hexdec(trim(substr($record, 6, 8))) : null;
}

function weight(int $common, int $weights): int
{
    return ($common & 0x30000000 ? $weights >> 16 & 15 : 0)
        + ($common & 0x0f000000 ? $weights >> 12 & 15 : 0)
        + ($common & 0x00f00000 ? $weights >> 8 & 15 : 0)
        + ($common & 0x000ffc00 ? $weights >> 4 & 15 : 0)
        + ($common & 0x000003ff ? $weights & 15 : 0);
}

/** Puts the name of the ad's picture into all tags; the length stays. */
function put_ad(string $file, int $ad): string
{
    $picture = sprintf('dir%05d/class%d_%d', intdiv($ad, 36), intdiv($ad % 36, 9), $ad % 9);
    $tag = fn (string $name): string => "<!WEB99CAD><IMG SRC=\"/file_set/$name\"><!/WEB99CAD>";
    return str_replace($tag('dirNNNNN/classX_Y'), $tag($picture), $file);
}

/** Logs a form and answers with its file. */
function post(array &$headers): string
{
    $form = [];
    foreach (['urlroot' => '[\w./\-]*', 'dir' => '\d{1,5}', 'class' => '[0-3]', 'num' => '[0-8]', 'client' => '\d{1,10}'] as $key => $form_of) {
        $form[$key] = $_POST[$key] ?? null;
        if (!is_string($form[$key]) || !preg_match("~^$form_of\$~D", $form[$key])) {
            throw new Refusal("The form's $key is missing or wrong.", 400);
        }
    }
    $user = user()[0] ?? 0;
    $path = sprintf('%sdir%05d/class%d_%d', $form['urlroot'], $form['dir'], $form['class'], $form['num']);
    $file = file_of_site($path);
    append_log($form, $path, $user);
    $headers[] = "Set-Cookie: my_cookie=$user";
    return $file;
}

/** Adds a record and counts it; whoever else writes or reads meanwhile waits. */
function append_log(array $form, string $path, int $user): void
{
    with_log(LOCK_EX, function ($log) use ($form, $path, $user): void {
        $number = (int) fread($log, LOG_HEAD) + 1;
        $record = sprintf(
            "%10d %10d %10d %5d %2d %2d %10d %-60.60s %10d %10d\n",
            $number, time(), getmypid(), $form['dir'], $form['class'], $form['num'], $form['client'], $path, getmypid(), $user
        );
        fseek($log, LOG_HEAD + ($number - 1) * LOG_RECORD);
        $written = fwrite($log, $record);
        rewind($log);
        if ($written !== LOG_RECORD || fwrite($log, sprintf("%10d\n", $number)) !== LOG_HEAD) {
            throw new Refusal('post.log can\'t be written.', 500);
        }
    });
}

function fetch_log(): string
{
    return with_log(LOCK_SH, fn ($log): string => (string) stream_get_contents($log));
}

function with_log(int $lock, callable $work): mixed
{
    $log = @fopen(data('post.log'), 'c+b');
    if ($log === false || !flock($log, $lock)) {
        throw new Refusal('post.log can\'t be opened: the data folder must be writable.', 500);
    }
    // PHP would read ahead, and then write somewhere else.
    stream_set_read_buffer($log, 0);
    try {
        return $work($log);
    } finally {
        fflush($log);
        flock($log, LOCK_UN);
        fclose($log);
    }
}

/** Makes new users and ads and empties the log. */
function reset_data(string $query): void
{
    parse_str(substr($query, strlen('command/Reset&')), $given);
    $number = function (string $key) use ($given): int {
        $text = $given[$key] ?? null;
        if (!is_string($text) || !preg_match('~^\d{1,7}$~D', $text)) {
            throw new Refusal("command/Reset needs the number $key.", 400);
        }
        return (int) $text;
    };
    [$users, $run_s, $threads] = [$number('maxload'), $number('pttime'), $number('maxthread')];
    if (!is_string($given['exp'] ?? null) || !preg_match('~^(\d{1,3}),(\d{1,3})$~D', $given['exp'], $over)) {
        throw new Refusal('command/Reset needs exp, two ads with a comma between.', 400);
    }
    replace('User.Personality', personalities(max($users, $threads)));
    replace('Custom.Ads', ads(time() + 2 * $run_s, $threads, [(int) $over[1], (int) $over[2]]));
    with_log(LOCK_EX, function ($log): void {
        ftruncate($log, 0);
        fwrite($log, sprintf("%10d\n", 0));
    });
}

/** Whole or not at all: requests go on meanwhile. */
function replace(string $name, string $bytes): void
{
    $new = data($name) . '.' . getmypid();
    if (@file_put_contents($new, $bytes) !== strlen($bytes) || !rename($new, data($name))) {
        throw new Refusal("$name can't be written: the data folder must be writable.", 500);
    }
}

function personalities(int $count): string
{
    $text = '';
    for ($user = 0; $user < $count; $user++) {
        $text .= sprintf("%5d %8X\n", $user, demographics($user, false));
    }
    return $text;
}

function ads(int $expires, int $threads, array $over): string
{
    $text = '';
    for ($ad = 0; $ad < ADS; $ad++) {
        $demographics = demographics($ad, true);
        $weights = spread($ad) * spread($ad) % 1048576 ?: 0x27104;
        $least = 75;
        if ($ad % 24 === $threads % 24) {
            [$demographics, $weights, $least] = [$demographics | 0x3ff, 0x3ffff, 1];
        }
        $is_over = false;
        foreach ($over as $first) {
            $is_over = $is_over || ($ad + ADS - $first % ADS) % ADS < 24;
        }
        $text .= sprintf("%5d %8X %8X %3d %10d\n", $ad, $demographics, $weights, $least, $expires - ($is_over ? 31622400 : 0));
    }
    return $text;
}

function spread(int $index): int
{
    return ($index % ADS) * 10000 % 12301 ?: 12300;
}

/** One bit each for gender, age, region and two interests. */
function demographics(int $index, bool $of_ad): int
{
    $spread = spread($index);
    [$low, $middle, $high] = [$spread & 15, $spread >> 4 & 15, $spread >> 8 & 15];
    $second = $low % 10;
    if ($of_ad && ($second === 4 || $second === 5)) {
        $second = 9 - $second;
    }
    return ($spread % 2 ? 0x20000000 : 0x10000000)
        | 0x08000000 >> $spread % 4
        | 0x00800000 >> ($low + $high) % 4
        | 0x00080000 >> ($low + $middle) % 10
        | 0x00000200 >> $second;
}

# shellcheck shell=bash
packages() { echo php-symfony-framework-bundle php-fpm php-xml; }
needs() { echo php; }
prepare() {
    mkdir -p "$run/symfony/public" "$run/symfony/private" "$run/symfony/var"
    echo "a file that only the application names" >"$run/symfony/private/file.txt"
    cp "$here/apps/symfony.php" "$run/symfony/public/index.php"
    echo "body { margin: 0 }" >"$run/symfony/public/style.css"
    chown www-data "$run/symfony/var"
}
ask() {
    says / "Hello from Symfony"
    says /hello/w%C3%B6rld "Hello, wörld of http://symfony.test:18100"
    says /index.php/hello/you "Hello, you"
    says /index.php/ "base /index.php"
    says /post '{"words":"mine"}' -H "Content-Type: application/json" -d '{"words":"mine"}'
    says /nothing "404" -I
    says /post "405" -I
    # It names a file, and Lowroad sends it.
    says /file "a file that only the application names"
    says /file "HTTP/1.1 206" -i -H "Range: bytes=0-5"
    says /style.css "text/css" -I
}

# shellcheck shell=bash
packages() { echo phpmyadmin php-fpm php-mysql php-mbstring mariadb-server; }
needs() { echo php database; }
prepare() {
    database pma
    mariadb --no-defaults -S "$run/db/sock" -u root -e "create table pma.t (n int, words text); insert into pma.t values (1, 'words of mine')"
}
ask() {
    local token
    says /phpmyadmin/ "Welcome to"
    complete /phpmyadmin/
    says /phpmyadmin "Location: /phpmyadmin/" -I
    says /phpmyadmin/themes/pmahomme/img/logo_right.png "image/png" -I
    says /phpmyadmin/templates/login/header.twig "403" -I
    says /phpmyadmin/libraries/config.default.php "403" -I
    get /phpmyadmin/index.php >"$run/login"
    says /phpmyadmin/index.php "pma@localhost" -L -d pma_username=pma -d pma_password=pma -d server=1 \
        -d "set_session=$(hidden set_session <"$run/login")" --data-urlencode "token=$(hidden token <"$run/login")"
    token=$(get /phpmyadmin/index.php | grep -o 'token:"[^"]*"' | head -n 1 | cut -d '"' -f 2)
    says "/phpmyadmin/index.php?route=/sql&db=pma&table=t&ajax_request=1" "words of mine" --data-urlencode "token=$token" \
        --data-urlencode "sql_query=select * from t" -d db=pma -d table=t -d ajax_request=1
}

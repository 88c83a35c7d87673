# shellcheck shell=bash
packages() { echo mediawiki php-fpm php-mysql php-mbstring php-xml php-intl mariadb-server jq; }
needs() { echo php database; }
prepare() {
    database mediawiki
    mkdir "$run/mediawiki" "$run/mediawiki/images"
    (cd /usr/share/mediawiki && php maintenance/install.php --confpath="$run/mediawiki" --scriptpath="" \
        --server=http://mediawiki.test:18100 --dbtype=mysql --dbserver="localhost:$run/db/sock" --dbname=mediawiki --dbuser=mediawiki \
        --dbpass=mediawiki --skins=Vector,MonoBook --pass="secret pass 1" "A wiki" Boss) >"$run/mediawiki.log"
    cat >>"$run/mediawiki/LocalSettings.php" <<EOF
\$wgArticlePath = '/wiki/\$1';
\$wgEnableUploads = true;
\$wgUploadDirectory = '$run/mediawiki/images';
\$wgUploadPath = '/images';
EOF
    chown -R www-data "$run/mediawiki"
}
# Asks its API, whose answer is JSON.
api() {
    get /api.php -d format=json -d formatversion=2 "$@"
}
ask() {
    local token
    says / "Main Page" -L
    complete /wiki/Main_Page
    says /wiki/Main_Page "MediaWiki has been installed"
    says /wiki/.NET "There is currently no text in this page"
    says "/load.php?lang=en&modules=skins.vector.styles.legacy&only=styles&skin=vector" "text/css" -I
    says /resources/assets/poweredby_mediawiki_88x31.png "image/png" -I
    says "/wiki/Special:UserLogin" "Log in"
    token=$(api -d action=query -d meta=tokens -d type=login | jq -r .query.tokens.logintoken)
    says /api.php Success -d format=json -d action=login -d lgname=Boss -d "lgpassword=secret pass 1" --data-urlencode "lgtoken=$token"
    token=$(api -d action=query -d meta=tokens | jq -r .query.tokens.csrftoken)
    for page in AC/DC .NET 'C\D'; do
        says /api.php '"result":"Success"' -d format=json -d action=edit --data-urlencode "title=$page" --data-urlencode "text=text of $page" \
            --data-urlencode "token=$token"
    done
    says /wiki/AC/DC "text of AC/DC"
    says /wiki/.NET "text of .NET"
    says /wiki/C%5CD 'text of C\D'
    says /rest.php/v1/page/AC%2FDC "text of AC/DC"
    says /rest.php/v1/page/C%5CD/bare '"title":"C\\D"'
    says /rest.php/v1/page/AC%2FDC/html "text of AC/DC"
    # A file over what is uploaded in one request by default.
    head -c 1500000 /dev/urandom >"$run/noise"
    python3 "$here/apps/png.py" <"$run/noise" >"$run/noise.png"
    get /api.php -F action=upload -F filename=Noise.png -F "token=$token" -F "file=@$run/noise.png" -F format=json \
        -F ignorewarnings=1 >"$run/upload"
    grep -q Success "$run/upload" || { cat "$run/upload" >&2; exit 1; }
    says "$(jq -r .upload.imageinfo.url "$run/upload" | sed "s#$site##")" "image/png" -I
}

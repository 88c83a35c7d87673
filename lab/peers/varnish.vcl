# Varnish in front of nginx: everything that it may keep is kept, for as long as a run may last.
vcl 4.1;
backend origin {
    .path = "{{folder}}/origin.sock";
}
sub vcl_recv {
    unset req.http.Cookie;
}
sub vcl_backend_response {
    if (beresp.status == 200) {
        set beresp.ttl = 24h;
    }
}

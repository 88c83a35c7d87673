//! Paths are refused where a translation would send or run other files than nginx, and translated where it can be exact.

use super::protection_tests::import;

#[test]
fn plain_listener_of_a_name_is_that_of_one_site() {
    let tls = |port: u16| {
        format!(
            "server {{ listen {port} ssl; server_name a.example; root /srv; ssl_certificate /a.pem; ssl_certificate_key /a.key; }}"
        )
    };
    let plain =
        "server { listen 80; server_name a.example; return 301 https://$host$request_uri; }";
    let (sites, import) = import(&format!("{plain} {} {}", tls(8443), tls(443)));
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let listeners = sites.iter().map(|it| it.listen.len());
    assert_eq!(listeners.collect::<Vec<_>>(), [0, 1], "{}", import.text);
}

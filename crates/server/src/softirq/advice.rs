//! Remedies for the operator, by the names of the programs' counters: for punted requests, for connections left to the
//! kernel, and for responses that are not stored.

use lowroad_softirq::learner::DenialKind;

/// The remedy for a counter's name; `None` if the counter does not count punts.
#[must_use]
pub fn for_reason(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "up_miss" => {
            "first requests are always passed on; `lowroad explain URL` shows why others are not stored"
        }
        "up_expired" => {
            "longer lifetimes: Cache-Control of the server, or `attach --ttl SECONDS` if it has none"
        }
        "up_large" => {
            "a response is ten segments at most, 14,480 bytes (12,080 over IPv6); at TC three, on \
             connections that stay open: compress or shorten it"
        }
        "up_cookie" => "`attach --ignore-cookies`, if pages do not depend on cookies",
        "up_field" => {
            "for Cache-Control and Pragma of requests `attach --ignore-cache-control`; Range, \
             Authorization and others are left to the server; `lowroad explain URL -H FIELD` \
             shows which"
        }
        "up_room" => "the driver leaves no room for the response: `attach --tier tc`",
        "up_drain" => "nothing: it is being detached; `lowroad attach` attaches it again",
        "up_daemon" => "its daemon is gone or hangs: attach again",
        "up_denied" | "pass_denied" => "set by `attach --deny` and `--allow`, or by `lowroad deny`",
        "up_unadmitted" | "pass_unadmitted" => {
            "this machine filters its input: `attach --admit all`, if its rules accept every client of these ports"
        }
        "up_cut" | "up_more" | "up_long" | "up_window" | "up_flags" => {
            "nothing here: the client sends so; only a whole request in one segment is answered"
        }
        "up_method" | "up_target" | "up_version" | "up_host" | "up_syntax" => {
            "nothing here: such requests are for the server"
        }
        "pass_syn_off" => {
            "it is off, draining, bypassed, without its daemon or has nothing published yet: see the lines above"
        }
        "pass_syn_socket" => {
            "mostly connections in TIME_WAIT from the same port: net.ipv4.tcp_rfc1337=0 and no connection \
             tracking (nf_conntrack_count) let it answer them; or connections kept open"
        }
        "pass_syn_unusual" => "nothing here: the client begins so, or it is this machine's daemon",
        "pass_syn_foreign" => "nothing: they are for other machines",
        _ => return None,
    })
}

/// A message that the daemon has paused its fetches.
#[must_use]
pub fn for_pause(remaining_s: u64) -> String {
    format!(
        "pause for {remaining_s} s more: fetched responses brought fewer than two hits each; published \
         ones are still answered"
    )
}

/// The remedy for the reason why a response was not stored.
#[must_use]
pub fn for_denial(kind: DenialKind) -> &'static str {
    match kind {
        DenialKind::Lifetime => {
            "no lifetime: Cache-Control of the server, or `attach --ttl SECONDS`"
        }
        DenialKind::CacheControl => {
            "the server forbids it: its Cache-Control (private, no-store, no-cache)"
        }
        DenialKind::SetCookie => "Set-Cookie: only pages that set no cookie are stored",
        DenialKind::Vary => "Vary: only Accept-Encoding may be named there",
        DenialKind::Size => {
            "longer than the 14,480 bytes that are sent from here at most: compress or shorten it"
        }
        DenialKind::Few => {
            "restricted to some clients, or its path is excluded (`attach --exclude`)"
        }
        DenialKind::Other => "its status or form, or the server failed: `lowroad explain URL`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_softirq::layout::REASONS;

    #[test]
    fn exactly_the_punt_reasons_have_advice() {
        let others = ["pass_denied", "pass_unadmitted"];
        for (name, _) in REASONS {
            let goes_up = ["up_", "pass_syn_"]
                .iter()
                .any(|begin| name.starts_with(begin));
            assert_eq!(
                for_reason(name).is_some(),
                goes_up || others.contains(name),
                "{name}"
            );
        }
    }

    #[test]
    fn denial_advice_names_option_or_field() {
        let texts = DenialKind::ALL.map(for_denial);
        for word in [
            "--ttl",
            "Cache-Control",
            "Set-Cookie",
            "Vary",
            "14,480",
            "--exclude",
        ] {
            assert!(texts.iter().any(|text| text.contains(word)), "{word}");
        }
    }

    #[test]
    fn advice_names_the_option() {
        for (reason, word) in [
            ("up_expired", "--ttl"),
            ("up_large", "14,480"),
            ("up_cookie", "--ignore-cookies"),
            ("up_field", "--ignore-cache-control"),
            ("pass_unadmitted", "--admit"),
            ("pass_syn_socket", "TIME_WAIT"),
        ] {
            assert!(
                for_reason(reason).is_some_and(|text| text.contains(word)),
                "{reason}"
            );
        }
    }
}

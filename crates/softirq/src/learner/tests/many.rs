//! A site of thousands of pages, each requested occasionally, as in WebBench; and traffic that merely resembles such a
//! site at first.

use super::traffic::Site;
use std::collections::HashMap;

/// Kinds of pages: number of pages, share of requests in per cent, and whether the pages can be learned.
const KINDS: [(u64, u64, bool); 9] = [
    (400, 20, true),
    (400, 8, true),
    (500, 12, true),
    (1000, 20, true),
    (1100, 14, true),
    (1250, 16, true),
    (100, 2, true),
    (1350, 7, false),
    (10, 1, false),
];

/// Draws the next requested page, and returns whether it can be learned.
fn draw(site: &mut Site) -> (u64, bool) {
    let mut left = site.draw(100);
    for (kind, (pages, share, is_learnable)) in KINDS.into_iter().enumerate() {
        match left.checked_sub(share) {
            Some(more) => left = more,
            None => return (kind as u64 * 10_000 + site.draw(pages), is_learnable),
        }
    }
    unreachable!("the shares are all there is")
}

/// Number of hits among each thousand requests, and number of possible hits: a page is fetched at its second request.
fn learn(site: &mut Site, thousands: u64) -> Vec<(u64, u64)> {
    let mut request_counts: HashMap<u64, u64> = HashMap::new();
    let mut thousand = |_| {
        let (before, mut possible) = (site.hits, 0);
        for _ in 0..1000 {
            let (page, is_learnable) = draw(site);
            if !is_learnable {
                site.request_unlearnable();
                continue;
            }
            let times = request_counts.entry(page).or_default();
            *times += 1;
            possible += u64::from(*times > 2);
            site.request_page(page);
        }
        (site.hits - before, possible)
    };
    (0..thousands).map(&mut thousand).collect()
}

#[test]
fn thousands_of_pages_are_learned_once_they_get_hits() {
    for requests_per_second in [50, 250, 1000] {
        let mut site = Site::new(1);
        site.requests_per_second = requests_per_second;
        site.life_secs = 600;
        let hits = learn(&mut site, 12);
        println!("{requests_per_second}/s, hits of possible ones by thousands: {hits:?}");
        let (brought, possible) = hits[11];
        assert!(brought * 100 >= possible * 95, "{brought} of {possible}");
    }
}

/// Several hits soon after publication don't predict later ones.
#[test]
fn three_consecutive_requests_do_not_raise_the_forecast() {
    let mut site = Site::new(1);
    let (fetches, hits, requests) =
        site.during(|site| (0..20_000).for_each(|_| site.request_scanned_page(3)));
    assert_eq!(fetches, hits);
    assert!(fetches < 1500, "{fetches} of {requests}");
}

/// Each page is requested three times at intervals, so its single hit lets the forecast expect more hits than follow.
#[test]
fn unfulfilled_forecast_does_not_fund_fetches_again() {
    let mut site = Site::new(1);
    let ask = |site: &mut Site, pages: std::ops::Range<u64>| {
        for page in pages {
            // Three requests for each page, at intervals of a thousand pages.
            (0..3).for_each(|back| site.request_page(10_000 + page - 1000 * back));
        }
    };
    let (fetches, ..) = site.during(|site| ask(site, 0..10_000));
    assert!(fetches < 4000, "{fetches}");
    let (fetches, _, requests) = site.during(|site| ask(site, 10_000..40_000));
    assert!(fetches * 100 < requests, "{fetches} of {requests}");
}

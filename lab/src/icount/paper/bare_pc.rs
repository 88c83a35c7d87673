//! Paper `003`: compares the bare PC web server and Apache, for files, pages from a database, and both. Contains only
//! lists.

use super::super::drive::ConnectionMode::{Close, KeepAlive};
use super::PaperComparison;
use super::claim::{ClaimFactor, PaperClaim, UnjudgedClaim};
use super::load::DatabaseUse::{EachPage, Kept};
use super::load::{LoadPart, PaperLoad};
use super::subject::{ComparedServer, GuestSystem};

/// The comparison.
pub static PAPER: PaperComparison = PaperComparison {
    number: "003",
    title: "A web server without an operating system beside Apache: static and dynamic pages",
    subjects: SUBJECTS,
    loads: LOADS,
    claims: CLAIMS,
    unjudged: UNJUDGED,
};

const OWN_PAGE: &str = "/bare.lrp?size={size}";
const PHP_PAGE: &str = "/rows.php?size={size}";
const PHP_PAGE_KEPT: &str = "/rows.php?size={size}&keep=1";

const SUBJECTS: &[ComparedServer] = &[
    ComparedServer {
        name: "lowroad-bare",
        title: "the image",
        machine: GuestSystem::Image,
        pages: &[(Kept, OWN_PAGE)],
    },
    ComparedServer {
        name: "lowroad-pages",
        title: "Lowroad on Linux",
        machine: linux("lowroad-pages"),
        pages: &[(Kept, OWN_PAGE)],
    },
    ComparedServer {
        name: "lowroad-softirq",
        title: "with --softirq",
        machine: linux("lowroad-softirq"),
        pages: &[],
    },
    ComparedServer {
        name: "nginx-php",
        title: "nginx, php-fpm",
        machine: linux("nginx-php"),
        pages: &[(Kept, PHP_PAGE_KEPT), (EachPage, PHP_PAGE)],
    },
    ComparedServer {
        name: "apache-mod-php",
        title: "Apache (prefork), PHP in it",
        machine: linux("apache-mod-php"),
        pages: &[(Kept, PHP_PAGE_KEPT), (EachPage, PHP_PAGE)],
    },
];

const fn linux(peer: &'static str) -> GuestSystem {
    GuestSystem::Linux {
        peer,
        settings: &[],
    }
}

const LOADS: &[PaperLoad] = &[
    single_load(
        "static-kept",
        "3,593 B, kept",
        &[(LoadPart::Static, 1)],
        KeepAlive,
    ),
    single_load(
        "static-close",
        "3,593 B, a connection each",
        &[(LoadPart::Static, 1)],
        Close,
    ),
    rows(
        "rows1-kept",
        "page of 211 B (1 row), kept",
        SMALL,
        KeepAlive,
    ),
    rows(
        "rows1-close",
        "page of 211 B, a connection each",
        SMALL,
        Close,
    ),
    rows(
        "rows334-kept",
        "page of 10,217 B (334 rows), kept",
        MEDIUM,
        KeepAlive,
    ),
    rows(
        "rows334-close",
        "page of 10,217 B, a connection each",
        MEDIUM,
        Close,
    ),
    rows(
        "rows635-kept",
        "page of 19,248 B (635 rows), kept",
        LARGE,
        KeepAlive,
    ),
    rows(
        "rows635-close",
        "page of 19,248 B, a connection each",
        LARGE,
        Close,
    ),
    new_connections(
        "rows1-anew-kept",
        "211 B, kept, the database's connection each",
        SMALL,
        KeepAlive,
    ),
    new_connections(
        "rows1-anew-close",
        "211 B, both connections each",
        SMALL,
        Close,
    ),
    new_connections(
        "rows334-anew-kept",
        "10,217 B, kept, the database's each",
        MEDIUM,
        KeepAlive,
    ),
    new_connections("rows334-anew-close", "10,217 B, both each", MEDIUM, Close),
    new_connections(
        "rows635-anew-kept",
        "19,248 B, kept, the database's each",
        LARGE,
        KeepAlive,
    ),
    new_connections("rows635-anew-close", "19,248 B, both each", LARGE, Close),
    mix(
        "mix-100",
        "1,000 of 3,593 B and 100 of 211 B",
        &[(LoadPart::Static, 1000), (SMALL_PAGE, 100)],
    ),
    mix(
        "mix-200",
        "1,000 and 200",
        &[(LoadPart::Static, 1000), (SMALL_PAGE, 200)],
    ),
    mix(
        "mix-300",
        "1,000 and 300",
        &[(LoadPart::Static, 1000), (SMALL_PAGE, 300)],
    ),
    mix(
        "mix-400",
        "1,000 and 400",
        &[(LoadPart::Static, 1000), (SMALL_PAGE, 400)],
    ),
];

const SMALL_PAGE: LoadPart = LoadPart::Rows(211);
const SMALL: &[(LoadPart, u32)] = &[(SMALL_PAGE, 1)];
const MEDIUM: &[(LoadPart, u32)] = &[(LoadPart::Rows(10_217), 1)];
const LARGE: &[(LoadPart, u32)] = &[(LoadPart::Rows(19_248), 1)];

const fn single_load(
    name: &'static str,
    title: &'static str,
    parts: &'static [(LoadPart, u32)],
    mode: super::super::drive::ConnectionMode,
) -> PaperLoad {
    PaperLoad {
        name,
        title,
        parts,
        mode,
        database: &[Kept],
        divided_by: 1,
    }
}

/// A load of row pages. Pages with hundreds of rows cost more, so fewer requests give the same precision.
const fn rows(
    name: &'static str,
    title: &'static str,
    parts: &'static [(LoadPart, u32)],
    mode: super::super::drive::ConnectionMode,
) -> PaperLoad {
    let divided_by = match parts[0].0 {
        LoadPart::Rows(1_000..) => 4,
        _ => 1,
    };
    PaperLoad {
        divided_by,
        ..single_load(name, title, parts, mode)
    }
}

const fn new_connections(
    name: &'static str,
    title: &'static str,
    parts: &'static [(LoadPart, u32)],
    mode: super::super::drive::ConnectionMode,
) -> PaperLoad {
    PaperLoad {
        database: &[EachPage],
        ..rows(name, title, parts, mode)
    }
}

/// A mixed load. As in the paper, each request has its own connection, and each page its own database connection, if
/// the server supports that.
const fn mix(
    name: &'static str,
    title: &'static str,
    parts: &'static [(LoadPart, u32)],
) -> PaperLoad {
    PaperLoad {
        database: &[EachPage, Kept],
        ..single_load(name, title, parts, Close)
    }
}

const IMAGE: &str = "lowroad-bare";
const APACHE: &str = "apache-mod-php";

const CLAIMS: &[PaperClaim] = &[
    PaperClaim {
        page: "section IV.A",
        statement: "capacity for static pages: 6,000 requests a second, Apache 3,000",
        factor: ClaimFactor::Times(2.0),
        subject: (IMAGE, "static-close"),
        baseline: (APACHE, "static-close"),
    },
    PaperClaim {
        page: "section IV.A",
        statement: "processor at 3,000 static requests a second: 41 %, Apache 99 %",
        factor: ClaimFactor::Times(99.0 / 41.0),
        subject: (IMAGE, "static-close"),
        baseline: (APACHE, "static-close"),
    },
    PaperClaim {
        page: "section IV.B",
        statement: "capacity for dynamic pages, small data set: 1,000 requests a second, Apache 600",
        factor: ClaimFactor::Times(1000.0 / 600.0),
        subject: (IMAGE, "rows1-close"),
        baseline: (APACHE, "rows1-anew-close"),
    },
    PaperClaim {
        page: "section IV.B",
        statement: "processor at 600 dynamic requests a second: 17.7 %, Apache 99 %",
        factor: ClaimFactor::Times(99.0 / 17.7),
        subject: (IMAGE, "rows1-close"),
        baseline: (APACHE, "rows1-anew-close"),
    },
    PaperClaim {
        page: "section IV.B",
        statement: "the same capacities, with PHP's connections to the database kept, as the image's are",
        factor: ClaimFactor::Times(1000.0 / 600.0),
        subject: (IMAGE, "rows1-close"),
        baseline: (APACHE, "rows1-close"),
    },
    PaperClaim {
        page: "figure 7",
        statement: "beside 1,000 static pages a second Apache is full at 300 dynamic ones, the bare PC is not at 400",
        factor: ClaimFactor::More,
        subject: (IMAGE, "mix-400"),
        baseline: (APACHE, "mix-300"),
    },
    PaperClaim {
        page: "figure 8",
        statement: "higher capacity with 100 dynamic pages for 1,000 static ones",
        factor: ClaimFactor::More,
        subject: (IMAGE, "mix-100"),
        baseline: (APACHE, "mix-100"),
    },
    PaperClaim {
        page: "figure 8",
        statement: "likewise with 200",
        factor: ClaimFactor::More,
        subject: (IMAGE, "mix-200"),
        baseline: (APACHE, "mix-200"),
    },
    PaperClaim {
        page: "figure 8",
        statement: "likewise with 300",
        factor: ClaimFactor::More,
        subject: (IMAGE, "mix-300"),
        baseline: (APACHE, "mix-300"),
    },
    PaperClaim {
        page: "figure 8",
        statement: "likewise with 400",
        factor: ClaimFactor::More,
        subject: (IMAGE, "mix-400"),
        baseline: (APACHE, "mix-400"),
    },
    PaperClaim {
        page: "figures 9 and 10",
        statement: "better than Apache with the medium data set, too",
        factor: ClaimFactor::More,
        subject: (IMAGE, "rows334-close"),
        baseline: (APACHE, "rows334-anew-close"),
    },
    PaperClaim {
        page: "figures 9 and 10",
        statement: "better than Apache with the large data set, too",
        factor: ClaimFactor::More,
        subject: (IMAGE, "rows635-close"),
        baseline: (APACHE, "rows635-anew-close"),
    },
    PaperClaim {
        page: "figures 9 and 10",
        statement: "the same with the large data set, PHP's connections to the database kept",
        factor: ClaimFactor::More,
        subject: (IMAGE, "rows635-close"),
        baseline: (APACHE, "rows635-close"),
    },
    PaperClaim {
        page: "figures 11 and 12",
        statement: "a medium data set costs the database more than a small one, not the server",
        factor: ClaimFactor::Same,
        subject: (IMAGE, "rows1-close"),
        baseline: (IMAGE, "rows334-close"),
    },
    PaperClaim {
        page: "figures 11 and 12",
        statement: "likewise a large one",
        factor: ClaimFactor::Same,
        subject: (IMAGE, "rows1-close"),
        baseline: (IMAGE, "rows635-close"),
    },
];

const UNJUDGED: &[UnjudgedClaim] = &[
    UnjudgedClaim {
        page: "figures 3 to 7 and 9 to 12, as times",
        reason: "milliseconds: an emulated machine has no clock that says anything",
    },
    UnjudgedClaim {
        page: "figure 8, as rates",
        reason: "which rate a server sustains at each static rate: rates need a clock; shares stand in for them",
    },
    UnjudgedClaim {
        page: "figures 13 and 14",
        reason: "throughput by offered rate, likewise",
    },
    UnjudgedClaim {
        page: "table 1",
        reason: "bits on the wire for given rates, the same for all servers: the report computes them with the \
              formula of the paper, nothing is to be counted",
    },
    UnjudgedClaim {
        page: "figures 15 and 16",
        reason: "the phases of talking to the database, in milliseconds; and the image keeps its connections",
    },
    UnjudgedClaim {
        page: "IIS in sections IV.A to IV.E",
        reason: "runs on Windows only",
    },
];

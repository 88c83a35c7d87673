//! A parser of Prometheus' text format, independent of the library that writes it. Source: Prometheus documentation,
//! "Exposition formats".

use std::collections::BTreeMap;

/// The labels of a sample.
pub type Labels = BTreeMap<String, String>;

/// A scrape in the text format.
#[derive(Default)]
pub struct Scrape {
    /// The families by name.
    pub families: BTreeMap<String, Family>,
    /// The name, labels and value of each sample, in their order.
    pub samples: Vec<(String, Labels, f64)>,
}

/// A family of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// The metric type.
    pub kind: String,
    /// The help text.
    pub help: String,
}

impl Scrape {
    /// Reads a text; panics if it is malformed.
    pub fn read(text: &str) -> Scrape {
        let mut scrape = Scrape::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and a text");
                scrape.family(name).help = help.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                let family = scrape.family(name);
                assert_eq!(family.kind, "", "{name} has two types");
                family.kind = kind.to_owned();
            } else if line != "# EOF" {
                scrape.samples.push(sample(line));
            }
        }
        scrape
    }

    fn family(&mut self, name: &str) -> &mut Family {
        self.families.entry(name.to_owned()).or_default()
    }

    /// The sum of all samples with this name and at least these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&(String, Labels, f64)| {
            let (known, all, _) = sample;
            let is_equal =
                |(label, value): &(&str, &str)| all.get(*label).is_some_and(|it| it == value);
            known == name && labels.iter().all(is_equal)
        };
        self.samples
            .iter()
            .filter(has)
            .map(|(.., value)| value)
            .sum()
    }

    /// The name of the family to which a sample belongs.
    pub fn family_of(&self, name: &str) -> Option<&str> {
        let ends = ["", "_bucket", "_sum", "_count"];
        let names = ends.iter().filter_map(|end| name.strip_suffix(end));
        let mut families = names.filter_map(|name| self.families.get_key_value(name));
        families.next().map(|(name, _)| name.as_str())
    }
}

fn sample(line: &str) -> (String, Labels, f64) {
    let (head, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = match head.split_once('{') {
        Some((name, labels)) => (
            name,
            labels.strip_suffix('}').expect("an end of the labels"),
        ),
        None => (head, ""),
    };
    let value = value.parse().expect("a number");
    (name.to_owned(), read_labels(labels), value)
}

/// Reads `a="x",b="y"`, where a value may contain `\\`, `\"` and `\n`.
fn read_labels(mut text: &str) -> Labels {
    let mut labels = Labels::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").expect("a label");
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().expect("the end of a label") {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match chars.next().expect("an escape").1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        assert_eq!(labels.insert(name.to_owned(), value), None, "{name} twice");
        text = rest[end..].trim_start_matches(',');
    }
    labels
}

#[test]
fn samples_are_parsed() {
    let scrape = Scrape::read(
        "# HELP a Text.\n# TYPE a counter\na{x=\"1,\\\"}\\\\\",y=\"\\n\"} 2.5\na 1\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\n",
    );
    let (name, labels, value) = &scrape.samples[0];
    assert_eq!((name.as_str(), *value), ("a", 2.5));
    assert_eq!(
        (labels["x"].as_str(), labels["y"].as_str()),
        ("1,\"}\\", "\n")
    );
    assert_eq!(scrape.sum("a", &[]), 3.5);
    assert_eq!(scrape.sum("a", &[("y", "\n")]), 2.5);
    assert_eq!(scrape.family_of("h_bucket"), Some("h"));
}

//! Feature strings, negotiated per link.

use alloc::collections::BTreeSet;
use core::fmt;

use serde::{Serialize, Serializer};

use super::RawValue;
use super::object::each_string;
use crate::text::is_feature_name;

/// A feature that this project knows. One is on only where both ends advertised it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Feature {
    /// `frame-bin`: binary frames after the ack.
    FrameBin,
    /// `headroom`: the heartbeat key of that name.
    Headroom,
    /// `lease-fence`: leases carry a fencing token.
    LeaseFence,
    /// `lease-fleet`: this peer can ask a lease authority, or be one.
    LeaseFleet,
    /// `supervised-task`: `delegate_task` may carry `context.supervised`.
    SupervisedTask,
    /// `unknown-ok`: unknown message types are skipped.
    UnknownOk,
}

impl Feature {
    /// All features, sorted by name.
    pub const ALL: [Self; 6] = [
        Self::FrameBin,
        Self::Headroom,
        Self::LeaseFence,
        Self::LeaseFleet,
        Self::SupervisedTask,
        Self::UnknownOk,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FrameBin => "frame-bin",
            Self::Headroom => "headroom",
            Self::LeaseFence => "lease-fence",
            Self::LeaseFleet => "lease-fleet",
            Self::SupervisedTask => "supervised-task",
            Self::UnknownOk => "unknown-ok",
        }
    }

    /// Reads a name; `None` for one that we do not know.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.as_str() == name)
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of known features, in two bytes. What a peer advertised beyond them is nothing that we could use.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FeatureSet(u16);

impl FeatureSet {
    /// No feature.
    pub const EMPTY: Self = Self(0);
    /// Every feature.
    pub const ALL: Self = Self((1 << Feature::ALL.len()) - 1);
    /// How many distinct valid names are read of a peer's list; later ones are ignored.
    pub const MAX_NAMES: usize = 64;

    /// Reads a peer's list: `None` where it is no array. Entries that are no valid names are dropped, and repeats
    /// are dropped before [`Self::MAX_NAMES`] is applied, so that they cannot push known names out.
    #[must_use]
    pub fn read(list: &RawValue) -> Option<Self> {
        let mut names = BTreeSet::new();
        each_string(list, |name| {
            if is_feature_name(&name) && !names.contains(&*name) {
                names.insert(name.into_owned());
            }
            names.len() < Self::MAX_NAMES
        })
        .then(|| names.iter().filter_map(|name| Feature::parse(name)).collect())
    }

    /// Adds a feature.
    pub const fn insert(&mut self, feature: Feature) {
        self.0 |= feature.bit();
    }

    /// This set and one feature more.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | feature.bit())
    }

    /// This set less one feature.
    #[must_use]
    pub const fn without(self, feature: Feature) -> Self {
        Self(self.0 & !feature.bit())
    }

    /// What both sets hold: the agreed features of two ends.
    #[must_use]
    pub const fn intersect(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the feature is in the set.
    #[must_use]
    pub const fn contains(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }

    /// Whether the set holds nothing.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// [`Self::is_empty`] in the form that serde calls.
    pub(super) const fn is_empty_ref(&self) -> bool {
        self.is_empty()
    }

    /// The features, sorted by name.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.into_iter().filter(move |&feature| self.contains(feature))
    }
}

impl FromIterator<Feature> for FeatureSet {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        features.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Feature::as_str)).finish()
    }
}

impl Serialize for FeatureSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter().map(Feature::as_str))
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    fn read(names: &[String]) -> FeatureSet {
        let list = serde_json::value::to_raw_value(names).unwrap();
        FeatureSet::read(&list).unwrap()
    }

    fn names(of: impl Iterator<Item = u32>) -> Vec<String> {
        of.map(|n| format!("other-{n}")).chain(["unknown-ok".into(), "frame-bin".into()]).collect()
    }

    #[test]
    fn names_read_back_and_are_sorted() {
        assert!(Feature::ALL.windows(2).all(|pair| pair[0].as_str() < pair[1].as_str() && pair[0] < pair[1]));
        for feature in Feature::ALL {
            assert_eq!(Feature::parse(feature.as_str()), Some(feature));
            assert!(is_feature_name(feature.as_str()));
            assert!(FeatureSet::ALL.contains(feature));
            assert!(!FeatureSet::ALL.without(feature).contains(feature));
        }
        let set = FeatureSet::EMPTY.with(Feature::UnknownOk).with(Feature::FrameBin);
        assert_eq!(serde_json::to_string(&set).unwrap(), r#"["frame-bin","unknown-ok"]"#);
        assert_eq!(format!("{set:?}"), r#"{"frame-bin", "unknown-ok"}"#);
        assert_eq!(set.intersect(FeatureSet::EMPTY.with(Feature::FrameBin)).iter().count(), 1);
    }

    #[test]
    fn repeats_do_not_push_known_names_out() {
        let repeated: Vec<String> =
            core::iter::repeat_n("unknown-ok".into(), 64).chain(["frame-bin".into()]).collect();
        assert_eq!(read(&repeated), FeatureSet::EMPTY.with(Feature::UnknownOk).with(Feature::FrameBin));
    }

    #[test]
    fn at_most_64_distinct_names_are_read() {
        assert_eq!(read(&names(0..62)).iter().count(), 2);
        assert_eq!(read(&names(0..63)).iter().count(), 1);
        assert_eq!(read(&names(0..64)), FeatureSet::EMPTY);
        assert_eq!(read(&names(0..1000)), FeatureSet::EMPTY);
    }

    #[test]
    fn entries_that_are_no_names_do_not_count() {
        let list = format!("[{}\"frame-bin\"]", "\"Not A Name\",1,null,".repeat(64));
        let list: &RawValue = serde_json::from_str(&list).unwrap();
        assert_eq!(FeatureSet::read(list), Some(FeatureSet::EMPTY.with(Feature::FrameBin)));
    }

    #[test]
    fn what_is_no_array_is_no_list() {
        for text in ["null", "{}", "\"frame-bin\"", "1"] {
            assert_eq!(FeatureSet::read(serde_json::from_str(text).unwrap()), None, "{text}");
        }
    }
}

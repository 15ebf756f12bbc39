//! Distributions of flow sizes, as measured in data centres.

use crate::format::{FlowSizes, FlowSizesWord};

/// Payload of the packets in which some distributions are given.
const PACKET_BYTES: f64 = 1460.0;

/// Points of a cumulative distribution, linear in between.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeDistribution {
    /// Bytes, and the share of flows that have at most as many. Neither falls.
    points: Vec<(f64, f64)>,
}

impl SizeDistribution {
    /// The distribution that a scenario names.
    pub fn new(sizes: FlowSizes) -> Self {
        match sizes {
            FlowSizes::Bytes(bytes) => Self { points: vec![(f64::from(bytes), 1.0)] },
            FlowSizes::Word(word) => Self::parse(text(word)),
        }
    }

    fn parse(text: &str) -> Self {
        let unit = if text.lines().any(|l| l.starts_with("# unit: packets")) { PACKET_BYTES } else { 1.0 };
        let point = |line: &str| {
            let (size, share) = line.split_once(',')?;
            Some((size.parse::<f64>().ok()? * unit, share.parse().ok()?))
        };
        Self { points: text.lines().filter_map(point).collect() }
    }

    /// Mean size in bytes.
    pub fn mean_bytes(&self) -> f64 {
        let first = self.points.first().map_or(0.0, |(bytes, share)| bytes * share);
        let trapezoid = |pair: &[(f64, f64)]| (pair[0].0 + pair[1].0) / 2.0 * (pair[1].1 - pair[0].1);
        first + self.points.windows(2).map(trapezoid).sum::<f64>()
    }

    /// The size that this share of flows does not exceed, in whole bytes and at least one.
    pub fn quantile_bytes(&self, share: f64) -> u64 {
        let above = self.points.partition_point(|(_, at)| *at <= share).min(self.points.len().saturating_sub(1));
        let Some(&(high, to)) = self.points.get(above) else { return 1 };
        let bytes = match above.checked_sub(1).and_then(|below| self.points.get(below)) {
            Some(&(low, from)) if to > from && share < to => low + (high - low) * ((share - from) / (to - from)),
            _ => high,
        };
        (bytes.round() as u64).max(1)
    }
}

/// What is in the file of a distribution.
fn text(word: FlowSizesWord) -> &'static str {
    match word {
        FlowSizesWord::Websearch => include_str!("../data/flow-sizes/websearch_dctcp_pkts.csv"),
        FlowSizesWord::WebsearchBytes => include_str!("../data/flow-sizes/websearch_bytes.csv"),
        FlowSizesWord::Datamining => include_str!("../data/flow-sizes/datamining_vl2_pkts.csv"),
        FlowSizesWord::DataminingBytes => include_str!("../data/flow-sizes/datamining_bytes_tracks.csv"),
        FlowSizesWord::Imc10Short => include_str!("../data/flow-sizes/imc10_short_aditya_pkts.csv"),
        FlowSizesWord::FbHadoopBytes => include_str!("../data/flow-sizes/fb_hadoop_bytes_hpcc.csv"),
        FlowSizesWord::FbHadoop => include_str!("../data/flow-sizes/fb_hadoop_pkts.csv"),
        FlowSizesWord::FbCache => include_str!("../data/flow-sizes/fb_cache_pkts.csv"),
        FlowSizesWord::AliStorage => include_str!("../data/flow-sizes/ali_storage2019_bytes.csv"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEANS: [(FlowSizesWord, f64); 9] = [
        (FlowSizesWord::Websearch, 1141.0 * 1460.0),
        (FlowSizesWord::WebsearchBytes, 1_711_250.0),
        (FlowSizesWord::Datamining, 5116.6 * 1460.0),
        (FlowSizesWord::DataminingBytes, 12_658_207.6),
        (FlowSizesWord::Imc10Short, 133.8 * 1460.0),
        (FlowSizesWord::FbHadoopBytes, 120_420.8),
        (FlowSizesWord::FbHadoop, 2832.4 * 1460.0),
        (FlowSizesWord::FbCache, 623.8 * 1460.0),
        (FlowSizesWord::AliStorage, 40_869.8),
    ];

    #[test]
    fn every_file_has_the_mean_that_is_known_of_it() {
        for (word, mean) in MEANS {
            let found = SizeDistribution::new(FlowSizes::Word(word)).mean_bytes();
            assert!((found / mean - 1.0).abs() < 1e-3, "{word:?}: {found}, not {mean}");
        }
    }

    #[test]
    fn every_file_rises_to_one() {
        for (word, _) in MEANS {
            let points = SizeDistribution::new(FlowSizes::Word(word)).points;
            assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{word:?}");
            assert_eq!(points.last().map(|p| p.1), Some(1.0), "{word:?}");
            let lines = text(word).lines().filter(|l| l.starts_with(|c: char| c.is_ascii_digit())).count();
            assert_eq!(points.len(), lines, "{word:?}");
            assert!(text(word).starts_with("# source: "), "{word:?}");
        }
    }

    #[test]
    fn quantiles_lie_between_points() {
        let web = SizeDistribution::new(FlowSizes::Word(FlowSizesWord::WebsearchBytes));
        assert_eq!(web.quantile_bytes(0.0), 1);
        assert_eq!(web.quantile_bytes(0.15), 10_000);
        assert_eq!(web.quantile_bytes(0.175), 15_000);
        assert_eq!(web.quantile_bytes(0.985), 20_000_000);
        assert_eq!(web.quantile_bytes(1.0), 30_000_000);
        let jump = SizeDistribution::new(FlowSizes::Word(FlowSizesWord::Datamining));
        assert_eq!(jump.quantile_bytes(0.3), 1460);
        let fixed = SizeDistribution::new(FlowSizes::Bytes(77));
        assert_eq!((fixed.quantile_bytes(0.0), fixed.quantile_bytes(0.9), fixed.mean_bytes()), (77, 77, 77.0));
    }
}

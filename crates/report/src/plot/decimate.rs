//! Thinning of long series.

/// Series longer than this are thinned.
pub(crate) const LIMIT: usize = 2000;

/// Keeps the smallest and the largest point of each of `LIMIT / 2` equal parts, in order, so that no spike is lost.
pub(crate) fn decimate(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= LIMIT {
        return points.to_vec();
    }
    let parts = LIMIT / 2;
    let mut kept = Vec::with_capacity(LIMIT);
    for part in 0..parts {
        let chunk = &points[part * points.len() / parts..(part + 1) * points.len() / parts];
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        if let (Some(low), Some(high)) = (chunk.iter().min_by(by_value), chunk.iter().max_by(by_value)) {
            let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            kept.push(*first);
            if first != second {
                kept.push(*second);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_spike_survives() {
        let points: Vec<(f64, f64)> =
            (0..100_000).map(|at| (f64::from(at), if at == 54_321 { 60.0 } else { 0.2 })).collect();
        let kept = decimate(&points);
        assert!(kept.len() <= LIMIT);
        assert!(kept.contains(&(54_321.0, 60.0)));
        assert!(kept.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn short_series_stay_whole() {
        let points = vec![(0.0, 1.0); LIMIT];
        assert_eq!(decimate(&points).len(), LIMIT);
    }
}

//! The rule by which a row comes out or does not.

use crate::view::Here;

/// How many times too large or too small a figure or a ratio may be.
pub(super) const FACTOR: f64 = 1.5;
/// How far apart two figures of the paper must be to make an order: the larger is more than this many times the
/// smaller. Nearer ones count as the same.
pub(super) const APART: f64 = 1.1;
/// How far from 1 a ratio of the paper must be to be on a side of it.
pub(super) const ASIDE: f64 = 0.05;
/// Which part of the distance of the paper's ratio from 1 the runs' ratio must have.
pub(super) const LEAST_EFFECT: f64 = 0.5;

/// The rule, for people.
pub(super) fn rule() -> String {
    let [aside, apart] = [ASIDE, APART - 1.0].map(|part| part * 100.0);
    format!(
        "- All figures are medians over all runs that are kept, none chosen; in brackets the smallest and the \
         largest run. A ratio is taken between the two runs of each repetition, which have the same draws.\n\
         - A **figure** holds within a factor of {FACTOR} of the paper's; where the paper has 0, what rounds to 0 \
         holds. The lab's guests are translated: its absolute figures are shown and not held, only the orders that \
         they make, and a row with such figures comes out \"in part\" at most.\n\
         - A **ratio** holds within a factor of {FACTOR} of the paper's and with at least half of its distance from \
         1: 40% less is not held by 12% less. If the paper's is nearer to 1 than {aside:.0}%, it holds within \
         {apart:.0}%.\n\
         - A **direction** is the side of 1 that a ratio is on (if the paper's is {aside:.0}% from 1 or more), and \
         each pair of neighbours in an order. Figures of one metric make orders, too: each pair that is {apart:.0}% \
         apart in the paper.\n\
         - A row **comes out** if all of it holds and all of it was run; **in part** if all of its \
         directions hold, whatever the figures do; else **not**. The verdict is the simulator's, the lab's where \
         only the lab has runs; where the lab says \"not\", the row is \"in part\" at most.\n\
         - A row that does not come out is **explained** if all of it was run in the simulator and everything in it \
         that does not hold, in the lab too, does so in one experiment of the simulator: of the same cells, but for \
         what is named, so that it states each such figure as often as the row. All that is stated with this must \
         hold, on other rows, too: what makes one figure right and another wrong is no cause. Where two figures are \
         in the other order, what does not hold is the one that is off by more than the factor, or both. Where the \
         lab says \"not\", nothing is explained.\n\
         - What was not run, or is not kept, is **not measured**. Where some runs lack a figure (nothing ended in \
         them, say), it is said how many have it, and the row is \"in part\" at most. \"Old\" runs are of other \
         code or of another scenario than is here now.\n"
    )
}

/// What is said of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// All holds.
    ComesOut,
    /// What does not hold does in one experiment.
    Explained,
    /// All directions, or not all was run.
    InPart,
    /// Something goes the other way, or nothing is near.
    Not,
    /// There are no runs.
    NotMeasured,
}

impl Verdict {
    /// All, from best to worst.
    pub const ALL: [Self; 5] = [Self::ComesOut, Self::Explained, Self::InPart, Self::Not, Self::NotMeasured];

    /// As the rule has it.
    pub fn words(self) -> &'static str {
        match self {
            Self::ComesOut => "comes out",
            Self::Explained => "explained",
            Self::InPart => "in part",
            Self::Not => "not",
            Self::NotMeasured => "not measured",
        }
    }
}

/// How many of all hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub held: usize,
    pub all: usize,
}

impl Share {
    fn add(&mut self, holds: bool) {
        self.all += 1;
        self.held += usize::from(holds);
    }

    /// Adds another's.
    pub fn extend(&mut self, other: Self) {
        self.all += other.all;
        self.held += other.held;
    }

    fn is_whole(self) -> bool {
        self.held == self.all
    }
}

/// How figures of one metric hold.
#[derive(Debug)]
pub(super) struct Figures {
    /// By themselves.
    pub sizes: Share,
    /// Against each other.
    pub directions: Share,
    /// Whether each figure holds in both ways; none where it was not run.
    pub each: Vec<Option<bool>>,
}

/// What holds of all statements of a row with one engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Figures and ratios.
    pub sizes: Share,
    /// Sides of 1, and pairs of orders.
    pub directions: Share,
    /// Statements without runs.
    pub missing: usize,
    /// Figures that some runs lack.
    pub partial: usize,
    /// Figures that are not held to the paper's.
    pub unheld: usize,
}

impl Tally {
    /// Adds figures of one metric, each the paper's and ours; `decimals` as the metric is shown.
    pub fn figures(&mut self, pairs: &[(f64, Option<f64>)], decimals: u8, are_held: bool) -> Figures {
        let (mut sizes, mut directions) = (Share::default(), Share::default());
        let mut each: Vec<Option<bool>> = pairs.iter().map(|(_, here)| here.map(|_| true)).collect();
        for (place, (paper, here)) in pairs.iter().enumerate() {
            match here {
                None => self.missing += 1,
                Some(here) if are_held => {
                    let holds = figure_holds(*paper, *here, decimals);
                    sizes.add(holds);
                    each[place] = Some(holds);
                }
                Some(_) => self.unheld += 1,
            }
        }
        let by_size = each.clone();
        for (place, (paper, here)) in pairs.iter().enumerate() {
            let Some(here) = here else { continue };
            for (other_place, (other_paper, other)) in pairs[..place].iter().enumerate() {
                let (less, more) = if paper < other_paper { (paper, other_paper) } else { (other_paper, paper) };
                if let Some(other) = other.filter(|_| *more > APART * less) {
                    let holds = if paper < other_paper { *here < other } else { *here > other };
                    directions.add(holds);
                    // If one figure is far off by itself, that one reverses the order, and not the other.
                    if !holds && ![place, other_place].iter().any(|one| by_size[*one] == Some(false)) {
                        (each[place], each[other_place]) = (Some(false), Some(false));
                    }
                }
            }
        }
        self.sizes.extend(sizes);
        self.directions.extend(directions);
        Figures { sizes, directions, each }
    }

    /// Counts a figure that some runs lack: a median of the others is one of runs that went well, so that it may
    /// speak against a row, but not alone for it.
    pub fn partial(&mut self, here: Option<Here>) {
        self.partial += usize::from(here.is_some_and(Here::is_partial));
    }

    /// Adds a ratio; returns whether it holds.
    pub fn ratio(&mut self, paper: f64, here: Option<f64>) -> Option<bool> {
        let Some(here) = here else {
            self.missing += 1;
            return None;
        };
        let is_within = |factor: f64| here <= paper * factor && here >= paper / factor;
        let is_aside = (paper - 1.0).abs() >= ASIDE;
        let has_effect = (here - 1.0).abs() >= LEAST_EFFECT * (paper - 1.0).abs();
        let is_on_side = (paper > 1.0) == (here > 1.0) && here != 1.0;
        let holds = if is_aside { is_within(FACTOR) && has_effect && is_on_side } else { is_within(APART) };
        self.sizes.add(holds);
        if is_aside {
            self.directions.add(is_on_side);
        }
        Some(holds)
    }

    /// Adds an order: `here` has the runs' figures, from the paper's best to its worst.
    pub fn order(&mut self, here: &[Option<f64>], more_is_better: bool) -> Share {
        let mut directions = Share::default();
        self.missing += usize::from(here.iter().any(Option::is_none));
        for pair in here.windows(2) {
            if let [Some(better), Some(worse)] = pair {
                directions.add(if more_is_better { better > worse } else { better < worse });
            }
        }
        self.directions.extend(directions);
        directions
    }

    /// What the rule makes of it.
    pub fn verdict(&self) -> Verdict {
        let measured = self.sizes.all + self.directions.all;
        let is_whole = self.sizes.is_whole() && self.directions.is_whole();
        if measured == 0 {
            Verdict::NotMeasured
        } else if is_whole && self.missing + self.partial + self.unheld == 0 {
            Verdict::ComesOut
        } else if is_whole || (self.directions.all > 0 && self.directions.is_whole()) {
            Verdict::InPart
        } else {
            Verdict::Not
        }
    }
}

fn figure_holds(paper: f64, here: f64, decimals: u8) -> bool {
    if paper == 0.0 {
        return here.abs() < 0.5 * 10f64.powi(-i32::from(decimals));
    }
    here <= paper * FACTOR && here >= paper / FACTOR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(paper: f64, here: f64) -> Verdict {
        let mut tally = Tally::default();
        tally.ratio(paper, Some(here));
        tally.verdict()
    }

    #[test]
    fn a_ratio_holds_near_the_papers_and_away_from_1() {
        for (paper, here, verdict) in [
            (5.0, 4.0, Verdict::ComesOut),
            (5.0, 7.5, Verdict::ComesOut),
            (5.0, 3.0, Verdict::InPart),
            (5.0, 8.0, Verdict::InPart),
            (5.0, 0.9, Verdict::Not),
            (0.6, 0.79, Verdict::ComesOut),
            (0.6, 0.88, Verdict::InPart),
            (0.6, 1.0, Verdict::Not),
            (1.02, 0.99, Verdict::ComesOut),
            (1.0, 1.2, Verdict::Not),
            (1.0, 1.0, Verdict::ComesOut),
            (1.0, 0.95, Verdict::ComesOut),
        ] {
            assert_eq!(ratio(paper, here), verdict, "{paper} {here}");
        }
    }

    #[test]
    fn figures_hold_by_themselves_and_against_each_other() {
        let verdict = |pairs: &[(f64, Option<f64>)], are_held| {
            let mut tally = Tally::default();
            tally.figures(pairs, 0, are_held);
            tally.verdict()
        };
        assert_eq!(verdict(&[(10.0, Some(14.0))], true), Verdict::ComesOut);
        assert_eq!(verdict(&[(10.0, Some(16.0))], true), Verdict::Not);
        assert_eq!(verdict(&[(0.0, Some(0.4))], true), Verdict::ComesOut);
        assert_eq!(verdict(&[(0.0, Some(0.6))], true), Verdict::Not);
        assert_eq!(verdict(&[(10.0, Some(100.0)), (20.0, Some(300.0))], true), Verdict::InPart);
        assert_eq!(verdict(&[(10.0, Some(12.0)), (20.0, Some(14.0))], true), Verdict::ComesOut);
        assert_eq!(verdict(&[(10.0, Some(15.0)), (20.0, Some(14.0))], true), Verdict::Not);
        assert_eq!(verdict(&[(10.0, Some(10.0)), (10.5, Some(9.0))], true), Verdict::ComesOut);
        assert_eq!(verdict(&[(10.0, Some(12.0)), (20.0, None)], true), Verdict::InPart);
        assert_eq!(verdict(&[(10.0, None)], true), Verdict::NotMeasured);
        // Absolute figures that are not held say nothing alone, and never that a row comes out.
        assert_eq!(verdict(&[(10.0, Some(10.0))], false), Verdict::NotMeasured);
        assert_eq!(verdict(&[(10.0, Some(10.0)), (20.0, Some(20.0))], false), Verdict::InPart);
    }

    #[test]
    fn an_order_holds_pair_by_pair() {
        let verdict = |here: &[Option<f64>], more| {
            let mut tally = Tally::default();
            tally.order(here, more);
            tally.verdict()
        };
        assert_eq!(verdict(&[Some(3.0), Some(2.0), Some(1.0)], true), Verdict::ComesOut);
        assert_eq!(verdict(&[Some(3.0), Some(2.0), Some(1.0)], false), Verdict::Not);
        assert_eq!(verdict(&[Some(3.0), Some(3.0)], true), Verdict::Not);
        assert_eq!(verdict(&[5.0, 4.0, 3.0, 1.0, 2.0].map(Some), true), Verdict::Not);
        assert_eq!(verdict(&[Some(3.0), Some(2.0), None], true), Verdict::InPart);
        assert_eq!(verdict(&[Some(3.0), None], true), Verdict::NotMeasured);
    }
}

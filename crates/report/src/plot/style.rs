//! Colours, marks and dashes. Colours are those of Okabe and Ito, told apart by colour-blind readers; marks and dashes
//! tell the series apart without colour.

use plotters::style::RGBColor;

/// Units of an SVG's view box per CSS pixel: plotters draws on whole units, so a finer grid keeps curves smooth.
pub(crate) const UNIT: i32 = 4;

/// Text in plots, in CSS pixels.
pub(crate) const FONT: i32 = 14;

/// Colour of text; the page's style sheet replaces it in the dark.
pub(crate) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Colour of axes.
pub(crate) const AXIS: RGBColor = RGBColor(0x77, 0x77, 0x77);
/// Colour of grid lines.
pub(crate) const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
/// Colour of shaded intervals.
pub(crate) const SHADE: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);

/// Colours of series, in order. The style sheet has a lighter set for the dark, by class `c0`, `c1`, ...
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xb0, 0x5a, 0x8c),
    RGBColor(0x8a, 0x6d, 0x00),
    RGBColor(0x3a, 0x9b, 0xd9),
    RGBColor(0x55, 0x55, 0x55),
];

/// Dashes of lines, in CSS pixels, in order; the first is solid.
const DASHES: [&[i32]; 4] = [&[], &[7, 4], &[2, 3], &[9, 3, 2, 3]];

/// The shape of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Filled circle.
    Circle,
    /// Filled square.
    Square,
    /// Filled triangle.
    Triangle,
    /// Filled diamond.
    Diamond,
    /// Diagonal cross.
    Cross,
    /// Hollow diamond on the page's ground: the paper's figures.
    Hollow,
}

const SHAPES: [Shape; 5] = [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond, Shape::Cross];

/// How a series is drawn, by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look(pub usize);

impl Look {
    /// Its colour.
    pub fn colour(self) -> RGBColor {
        COLOURS[self.0 % COLOURS.len()]
    }

    /// Its colour as CSS writes it.
    pub fn hex(self) -> String {
        let RGBColor(red, green, blue) = self.colour();
        format!("#{red:02X}{green:02X}{blue:02X}")
    }

    /// Class of the group that holds its marks.
    pub fn class(self) -> String {
        format!("c{}", self.0 % COLOURS.len())
    }

    /// Shape of its marks.
    pub fn shape(self) -> Shape {
        SHAPES[self.0 % SHAPES.len()]
    }

    /// `stroke-dasharray` of its lines in view box units, empty for a solid line.
    pub fn dashes(self) -> String {
        self.dashes_by(UNIT)
    }

    /// As [`Self::dashes`], in CSS pixels.
    pub fn css_dashes(self) -> String {
        self.dashes_by(1)
    }

    fn dashes_by(self, unit: i32) -> String {
        let lengths = DASHES[self.0 % DASHES.len()].iter().map(|length| (length * unit).to_string());
        lengths.collect::<Vec<_>>().join(" ")
    }
}

/// One entry of a legend.
pub(crate) struct Key {
    /// What it stands for.
    pub label: String,
    /// How it looks.
    pub swatch: Swatch,
}

/// What a legend shows beside a label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Swatch {
    /// A filled box.
    Box(Look),
    /// A line with a mark.
    Line(Look),
    /// A line without a mark.
    Plain(Look),
    /// A vertical tick, as segments are drawn.
    Tick(Look),
    /// A vertical tick with a cross, as retransmissions are drawn.
    CrossedTick(Look),
    /// The mark of the paper's figures.
    Paper,
    /// A shaded interval.
    Shade,
}

//! Legends: in HTML rather than in the plots, so that they break into lines on a phone.

use std::fmt::Write as _;

use super::{escape, put};
use crate::plot::{Key, Shape, Swatch};

/// Writes the legend; nothing for a plot without keys.
pub(super) fn legend(out: &mut String, keys: &[Key]) {
    if keys.is_empty() {
        return;
    }
    put!(out, "<ul class=\"legend\">");
    for key in keys {
        put!(out, "<li>{}{}</li>", swatch(key.swatch), escape(&key.label));
    }
    put!(out, "</ul>");
}

/// A small picture of how a series is drawn; its label says the rest, so it is hidden from screen readers.
pub(crate) fn swatch(swatch: Swatch) -> String {
    let (class, body) = match swatch {
        Swatch::Box(look) => {
            (look.class(), format!("<rect x=\"6\" y=\"2\" width=\"16\" height=\"12\" fill=\"{}\"/>", look.hex()))
        }
        Swatch::Plain(look) => (look.class(), line(&look.hex(), &look.css_dashes())),
        Swatch::Line(look) => (look.class(), line(&look.hex(), &look.css_dashes()) + &mark(look.shape(), &look.hex())),
        Swatch::Tick(look) => (look.class(), tick(&look.hex())),
        Swatch::CrossedTick(look) => (look.class(), tick(&look.hex()) + &mark(Shape::Cross, &look.hex())),
        Swatch::Paper => ("over".to_owned(), mark(Shape::Hollow, "#222222")),
        Swatch::Shade => {
            ("shade".to_owned(), "<rect x=\"2\" y=\"1\" width=\"24\" height=\"14\" fill=\"#E4E4E4\"/>".to_owned())
        }
    };
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 28 16\" aria-hidden=\"true\" focusable=\"false\"><g \
         class=\"{class}\">{body}</g></svg>"
    )
}

fn line(colour: &str, dashes: &str) -> String {
    format!("<path d=\"M1 8H27\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>")
}

fn tick(colour: &str) -> String {
    format!("<path d=\"M14 2V14\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>")
}

fn mark(shape: Shape, colour: &str) -> String {
    let path = match shape {
        Shape::Circle => return format!("<circle cx=\"14\" cy=\"8\" r=\"4\" fill=\"{colour}\"/>"),
        Shape::Cross => "M10 4L18 12M10 12L18 4",
        Shape::Hollow | Shape::Diamond => "M14 2.5L19.5 8L14 13.5L8.5 8Z",
        Shape::Square => "M10 4H18V12H10Z",
        Shape::Triangle => "M14 3L19 12H9Z",
    };
    match shape {
        Shape::Cross | Shape::Hollow => {
            format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.75\"/>")
        }
        _ => format!("<path d=\"{path}\" fill=\"{colour}\"/>"),
    }
}

//! Files and parts of pages that are made of the tables.

use crate::table::markdown;
use crate::{Table, cera, guest, host, pvtcp, vflood};

/// What stands before the name of a table in a page.
pub const BEGIN: &str = "<!-- settings: ";
const END: &str = "<!-- end of settings -->";

/// Files of the repository, and what is in them.
pub fn files() -> [(&'static str, String); 2] {
    [("packaging/host.toml", host::example()), ("packaging/guest.toml", guest::example())]
}

/// A page of documentation with its tables of settings, each between `<!-- settings: NAME -->` and
/// `<!-- end of settings -->`.
///
/// # Errors
/// A name that is no table's, or a table without an end.
pub fn page(text: &str) -> Result<String, String> {
    let (mut page, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->\n").ok_or("the name of a table has no end")?;
        let (_, after) = after.split_once(END).ok_or_else(|| format!("the table {name} has no end"))?;
        let table = table(name).ok_or_else(|| format!("there is no table {name}"))?;
        page += &format!("{before}{BEGIN}{name} -->\n{table}{END}");
        rest = after;
    }
    Ok(page + rest)
}

fn table(name: &str) -> Option<String> {
    let keys = match name {
        "vflood guest" => vflood::VfloodGuest::keys(),
        "cera guest" => cera::CeraGuest::keys(),
        "pvtcp" => pvtcp::Pvtcp::keys(),
        "channel guest" => guest::Channel::keys(),
        _ => host::MECHANISMS.iter().find(|(table, _)| *table == name)?.1(),
    };
    Some(markdown(&keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_tables() {
        let text = format!("a\n{BEGIN}vsnoop -->\nold\n{END}\nb\n");
        let wanted = page(&text).unwrap();
        assert!(wanted.contains("| `budget_segments` | - |") && !wanted.contains("old"), "{wanted}");
        assert_eq!(page(&wanted).unwrap(), wanted);
        assert!(page(&format!("{BEGIN}vsnop -->\n{END}")).is_err() && page(&format!("{BEGIN}vsnoop -->\n")).is_err());
    }
}

//! The form of ids, and how to make a legal id from any text.

use super::context::ReadContext;
use super::limits::ID_CHARS_MAX;
use super::path::Path;
use super::report::{FileFinding, quoted};

/// Whether `id` has the form of an id; if not, reports it.
pub(super) fn check(cx: &ReadContext<'_, '_>, id: &str, at: usize, path: &Path<'_>) -> bool {
    let legal = is_legal(id);
    if !legal {
        cx.report.add(|| bad_id(id, at).field(path));
    }
    legal
}

pub(super) fn is_legal(id: &str) -> bool {
    !id.is_empty() && id.len() <= ID_CHARS_MAX && id.bytes().all(is_id_byte)
}

pub(super) fn is_id_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')
}

fn bad_id(id: &str, at: usize) -> FileFinding {
    let message = match id.chars().count() {
        0 => "an id must not be empty".to_owned(),
        length if length > ID_CHARS_MAX => {
            format!("the id {} is {length} characters long", quoted(id))
        }
        _ => format!("{} is not a valid id", quoted(id)),
    };
    let form = format!("an id is 1 to {ID_CHARS_MAX} characters of a-z, 0-9, `-` and `_`");
    let hint = match slug(id) {
        Some(slug) if slug != id => format!("{form}; for example {}", quoted(&slug)),
        _ => form,
    };
    FileFinding::at(at, message).hint(hint)
}

/// The legal id that looks most like `text`: lower case, other characters as single dashes, cut
/// to length. `None` if nothing is left.
pub(super) fn slug(text: &str) -> Option<String> {
    let mut slug = String::with_capacity(text.len().min(ID_CHARS_MAX));
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        if slug.len() == ID_CHARS_MAX {
            break;
        }
        match u8::try_from(c).ok().filter(|byte| is_id_byte(*byte)) {
            Some(byte) => slug.push(char::from(byte)),
            None if slug.ends_with('-') || slug.is_empty() => {}
            None => slug.push('-'),
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    Some(slug).filter(|slug| !slug.is_empty())
}

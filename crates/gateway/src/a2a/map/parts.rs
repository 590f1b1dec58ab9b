//! Values of Steps as parts.

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use serde_json::Value as Json;
use tenure_core::record::{Value, ValueBody};

use super::BlobBytes;
use super::weights::read_json;
use crate::a2a::wire::{A2aContent, A2aPart};

/// The media type of a value that is a list of parts of A2A 1.0: how a worker says exactly what to show.
pub(super) const PARTS: &str = "application/vnd.tenure.a2a-parts+json";

/// The media type of JSON.
const JSON: &str = Value::JSON;

/// Callers may leave out the padding of base64.
const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// The alphabets of base64 in which callers may write bytes, as ProtoJSON has it.
static ALPHABETS: [GeneralPurpose; 2] = [
    GeneralPurpose::new(&alphabet::STANDARD, ANY_PADDING),
    GeneralPurpose::new(&alphabet::URL_SAFE, ANY_PADDING),
];

/// The bytes of a part as any worker can read them: in the standard alphabet, with padding. None if they are not
/// base64.
pub(crate) fn standard_base64(text: &str) -> Option<String> {
    let bytes = ALPHABETS.iter().find_map(|alphabet| alphabet.decode(text).ok())?;
    Some(BASE64.encode(bytes))
}

/// What a value shows. Nothing comes of an empty one.
pub(super) fn parts_of(value: &Value, blobs: &BlobBytes) -> Vec<A2aPart> {
    let media_type = value.content_type.as_str();
    let bytes = match &value.body {
        ValueBody::Data(data) => Some(&**data),
        ValueBody::Blob(blob) => blobs.get(&blob.hash).map(|bytes| &**bytes),
        ValueBody::Ref(_) => None,
    };
    match bytes {
        None => value.reference().map(|to| url(to.as_str(), media_type)).into_iter().collect(),
        // What is compressed or encrypted is for those who know how.
        Some(bytes) if !value.encoding.names().is_empty() => vec![raw(bytes, media_type)],
        Some(bytes) => parts_of_bytes(bytes, media_type),
    }
}

/// What bytes of a media type show. JSON that would take too much memory once it is read is shown as bytes.
pub(super) fn parts_of_bytes(bytes: &[u8], media_type: &str) -> Vec<A2aPart> {
    let name = media_type.split(';').next().unwrap_or_default().trim();
    if name == PARTS
        && let Some(parts) = read_json(bytes)
    {
        return parts;
    }
    if (name == JSON || name.ends_with("+json"))
        && let Some(json) = read_json(bytes)
    {
        return of_json(json, media_type);
    }
    match str::from_utf8(bytes) {
        Ok(text) if name.starts_with("text/") => vec![A2aPart::text(text).typed(media_type)],
        _ => vec![raw(bytes, media_type)],
    }
}

/// JSON as a part; a text in JSON is a text.
fn of_json(json: Json, media_type: &str) -> Vec<A2aPart> {
    match json {
        Json::Null => Vec::new(),
        Json::String(text) => vec![A2aPart::text(text)],
        json => vec![A2aPart::of(A2aContent::Data(json)).typed(media_type)],
    }
}

fn raw(bytes: &[u8], media_type: &str) -> A2aPart {
    A2aPart::of(A2aContent::Raw(BASE64.encode(bytes))).typed(media_type)
}

fn url(to: &str, media_type: &str) -> A2aPart {
    A2aPart::of(A2aContent::Url(to.to_owned())).typed(media_type)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::record::Blob;

    use super::*;

    fn shown(value: &Value, blobs: &BlobBytes) -> Json {
        serde_json::to_value(parts_of(value, blobs)).unwrap()
    }

    /// A2A-03: what a worker gives as its result is shown by its media type.
    #[test]
    fn a_value_is_shown_by_its_media_type() {
        let none = BlobBytes::new();
        for (media_type, bytes, expected) in [
            ("text/plain", "hi", json!([{"text": "hi", "mediaType": "text/plain"}])),
            (
                "text/html; charset=utf-8",
                "<b>",
                json!([{"text": "<b>", "mediaType": "text/html; charset=utf-8"}]),
            ),
            ("application/json", "\"hi\"", json!([{"text": "hi"}])),
            (
                "application/json",
                "{\"a\":1}",
                json!([{"data": {"a": 1}, "mediaType": "application/json"}]),
            ),
            ("application/json", "null", json!([])),
            ("application/json", "{", json!([{"raw": "ew==", "mediaType": "application/json"}])),
            ("image/png", "png", json!([{"raw": "cG5n", "mediaType": "image/png"}])),
            (PARTS, "[{\"url\":\"https://a\"}]", json!([{"url": "https://a"}])),
        ] {
            let value = Value::inline(media_type, bytes.as_bytes());
            assert_eq!(shown(&value, &none), expected, "{media_type} {bytes}");
        }
        let encoded = Value {
            encoding: ["zstd".into()].into_iter().collect(),
            ..Value::inline("text/plain", *b"hi")
        };
        assert_eq!(shown(&encoded, &none), json!([{"raw": "aGk=", "mediaType": "text/plain"}]));
    }

    /// Both alphabets of base64 are read, with and without padding, and written as one.
    #[test]
    fn bytes_of_callers_are_written_in_one_way() {
        for (given, written) in [
            ("cG5n", Some("cG5n")),
            ("cG5nMQ==", Some("cG5nMQ==")),
            ("cG5nMQ", Some("cG5nMQ==")),
            ("/+8=", Some("/+8=")),
            ("_-8", Some("/+8=")),
            ("", Some("")),
            ("/_8", None),
            ("cG5nM", None),
            ("not base64!", None),
        ] {
            assert_eq!(standard_base64(given).as_deref(), written, "{given:?}");
        }
    }

    /// A large value is shown as a small one, and what is elsewhere by its address.
    #[test]
    fn a_value_elsewhere_is_shown_if_it_was_read() {
        let blob = Blob::of(b"large");
        let value = Value::of("text/plain", ValueBody::Blob(blob));
        let blobs = BlobBytes::from([(blob.hash, b"large".as_slice().into())]);
        assert_eq!(shown(&value, &blobs), json!([{"text": "large", "mediaType": "text/plain"}]));
        let unread = shown(&value, &BlobBytes::new());
        assert_eq!(unread, json!([{"url": blob.reference(), "mediaType": "text/plain"}]));
        let elsewhere = ValueBody::Ref("https://example.org/a".parse().unwrap());
        let elsewhere = shown(&Value::of("image/png", elsewhere), &blobs);
        assert_eq!(elsewhere, json!([{"url": "https://example.org/a", "mediaType": "image/png"}]));
    }
}

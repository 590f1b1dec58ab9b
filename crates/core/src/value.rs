//! [`Value`], the opaque input or output of a Step (U13), and [`Blob`], which is what a Value points to
//! if it has more bytes than a log should hold (VALUE-01).

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;

use crate::id::{BlobHash, Ref};

/// An opaque value of a Step (U13): bytes inline up to the limit, a blob of the Task, or a pointer to
/// something elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Media type of the data.
    pub content_type: SmolStr,
    /// How the bytes are encoded.
    pub encoding: Encodings,
    /// The data itself, or where it is.
    pub body: ValueBody,
}

/// Where the bytes of a [`Value`] are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueBody {
    /// The bytes themselves.
    Data(Arc<[u8]>),
    /// A blob of the Task (VALUE-01).
    Blob(Blob),
    /// A reference to something else.
    Ref(Ref),
}

/// The bytes of a large value, which are stored beside the logs. A blob belongs to one Task
/// (VALUE-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blob {
    /// SHA-256 of its bytes.
    pub hash: BlobHash,
    /// How many bytes it has.
    pub size_bytes: u64,
}

impl Blob {
    /// The beginning of every ref of a blob; the hash follows in hexadecimal, in lower case.
    pub const PREFIX: &'static str = "blob:sha256:";

    /// The blob that has these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { hash: BlobHash(Sha256::digest(bytes).into()), size_bytes: bytes.len() as u64 }
    }

    /// Its ref.
    pub fn reference(&self) -> Ref {
        Self::reference_to(self.hash)
    }

    /// The ref of the blob with this hash.
    pub fn reference_to(hash: BlobHash) -> Ref {
        Ref::known(format!("{}{hash}", Self::PREFIX))
    }

    /// Its digest, with the algorithm.
    pub fn digest(&self) -> String {
        format!("sha256:{}", self.hash)
    }

    /// The hash in a digest of this form.
    pub fn hash_of_digest(digest: &str) -> Option<BlobHash> {
        BlobHash::from_hex(digest.strip_prefix("sha256:")?)
    }

    /// The hash in a ref of this form.
    pub fn hash_in(reference: &str) -> Option<BlobHash> {
        let hex = reference.strip_prefix(Self::PREFIX)?;
        BlobHash::from_hex(hex)
    }

    /// The hashes of all blobs that a text names, whatever is around their refs. Used on the lines of a
    /// log, this finds every blob that the log names.
    pub fn hashes_in(text: &[u8]) -> BTreeSet<BlobHash> {
        let prefix = Self::PREFIX.as_bytes();
        let length = prefix.len() + 64;
        let refs = text.windows(length.min(text.len().max(1))).filter(|at| at.starts_with(prefix));
        refs.filter_map(|found| Self::hash_in(core::str::from_utf8(found).ok()?)).collect()
    }
}

/// How bytes are encoded, outermost first, below the base64 in which JSON writes what is no text
/// (VALUE-03): `zstd`, `enc:<key id>`, or names that nobody here knows. Tenure passes them on and
/// reads none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encodings(Option<Arc<[SmolStr]>>);

impl Encodings {
    /// The name of the one encoding that JSON adds and takes off.
    pub const BASE64: &'static str = "base64";

    /// Their names.
    pub fn names(&self) -> &[SmolStr] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl FromIterator<SmolStr> for Encodings {
    fn from_iter<I: IntoIterator<Item = SmolStr>>(names: I) -> Self {
        let names: Vec<SmolStr> = names.into_iter().collect();
        Self((!names.is_empty()).then(|| names.into()))
    }
}

impl Value {
    /// Media type when none is given.
    pub const JSON: &'static str = "application/json";

    /// A value of a media type.
    pub fn of(content_type: &str, body: ValueBody) -> Self {
        Self { content_type: SmolStr::new(content_type), encoding: Encodings::default(), body }
    }

    /// Inline bytes of a media type.
    pub fn inline(content_type: &str, data: impl Into<Arc<[u8]>>) -> Self {
        Self::of(content_type, ValueBody::Data(data.into()))
    }

    /// Inline JSON text.
    pub fn json(data: impl Into<Arc<[u8]>>) -> Self {
        Self::inline(Self::JSON, data)
    }

    /// The inline bytes; `None` for a blob and for a reference.
    pub fn data(&self) -> Option<&[u8]> {
        match &self.body {
            ValueBody::Data(data) => Some(data),
            ValueBody::Blob(_) | ValueBody::Ref(_) => None,
        }
    }

    /// The blob that has its bytes.
    pub fn blob(&self) -> Option<Blob> {
        match &self.body {
            ValueBody::Blob(blob) => Some(*blob),
            ValueBody::Data(_) | ValueBody::Ref(_) => None,
        }
    }

    /// The ref of a blob or of something elsewhere.
    pub fn reference(&self) -> Option<Ref> {
        match &self.body {
            ValueBody::Data(_) => None,
            ValueBody::Blob(blob) => Some(blob.reference()),
            ValueBody::Ref(reference) => Some(reference.clone()),
        }
    }
}

#[derive(Serialize)]
struct ValueOut<'a> {
    content_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<BytesOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<EncodingOut<'a>>,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    reference: Option<Cow<'a, Ref>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

enum BytesOut<'a> {
    Text(&'a str),
    Base64(String),
    Bin(&'a [u8]),
}

impl Serialize for BytesOut<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => s.serialize_str(text),
            Self::Base64(text) => s.serialize_str(text),
            Self::Bin(bytes) => s.serialize_bytes(bytes),
        }
    }
}

/// Text for `base64` alone, otherwise a list.
struct EncodingOut<'a> {
    in_base64: bool,
    names: &'a [SmolStr],
}

impl Serialize for EncodingOut<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.in_base64 && self.names.is_empty() {
            return s.serialize_str(Encodings::BASE64);
        }
        let base64 = self.in_base64.then_some(Encodings::BASE64);
        s.collect_seq(base64.into_iter().chain(self.names.iter().map(SmolStr::as_str)))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let (mut reference, mut size_bytes, mut digest, mut in_base64) = (None, None, None, false);
        let data = match &self.body {
            ValueBody::Ref(other) => {
                reference = Some(Cow::Borrowed(other));
                None
            }
            ValueBody::Blob(blob) => {
                reference = Some(Cow::Owned(blob.reference()));
                size_bytes = Some(blob.size_bytes);
                digest = Some(blob.digest());
                None
            }
            ValueBody::Data(data) if !s.is_human_readable() => Some(BytesOut::Bin(data)),
            ValueBody::Data(data) => Some(core::str::from_utf8(data).map_or_else(
                |_| {
                    in_base64 = true;
                    BytesOut::Base64(BASE64.encode(data))
                },
                BytesOut::Text,
            )),
        };
        let names = self.encoding.names();
        let encoding = (in_base64 || !names.is_empty()).then_some(EncodingOut { in_base64, names });
        let content_type = &self.content_type;
        ValueOut { content_type, data, encoding, reference, size_bytes, digest }.serialize(s)
    }
}

/// The form that [`ValueOut`] writes and [`ValueIn`] reads.
impl JsonSchema for Value {
    fn schema_name() -> Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Data with its media type: here, in a blob of the Task, or at a reference.",
            "type": "object",
            "properties": {
                "content_type": {
                    "description": "The media type.",
                    "type": "string",
                    "default": Self::JSON,
                },
                "data": {
                    "description": "The bytes, at most 64 KiB: as `bin` in MessagePack, or as text. A caller may \
                        also give JSON that is no text, such as a map, which becomes its text.",
                    "type": ["string", "object", "array", "number", "boolean"],
                },
                "encoding": {
                    "description": "How the bytes are encoded, outermost first: `base64` where `data` is no \
                        text; others, such as `zstd` or `enc:<key id>`, are passed on unread.",
                    "anyOf": [
                        { "type": "string" },
                        { "type": "array", "items": { "type": "string" } },
                    ],
                },
                "ref": generator.subschema_for::<Ref>(),
                "size_bytes": {
                    "description": "With the ref of a blob (`blob:sha256:<hex>`): how many bytes it has, \
                        at most 16 MiB.",
                    "type": "integer",
                    "format": "uint64",
                    "minimum": 0,
                },
                "digest": {
                    "description": "With the ref of a blob: `sha256:<hex>`, with the hash of the ref.",
                    "type": "string",
                },
            },
            "additionalProperties": false,
            "oneOf": [{ "required": ["data"] }, { "required": ["ref"] }],
        })
    }
}

/// Data as it was given: bytes, text, or something else that has a form in JSON.
enum DataIn {
    Bytes(Vec<u8>),
    Json(Json),
}

impl<'de> Deserialize<'de> for DataIn {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct AnyData;
        impl<'de> Visitor<'de> for AnyData {
            type Value = DataIn;
            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("text, bytes, or JSON")
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<DataIn, E> {
                Ok(DataIn::Bytes(v.as_bytes().to_vec()))
            }
            fn visit_bytes<E: Error>(self, v: &[u8]) -> Result<DataIn, E> {
                Ok(DataIn::Bytes(v.to_vec()))
            }
            fn visit_bool<E: Error>(self, v: bool) -> Result<DataIn, E> {
                Ok(DataIn::Json(v.into()))
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<DataIn, E> {
                Ok(DataIn::Json(v.into()))
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<DataIn, E> {
                Ok(DataIn::Json(v.into()))
            }
            fn visit_f64<E: Error>(self, v: f64) -> Result<DataIn, E> {
                Ok(DataIn::Json(v.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<DataIn, A::Error> {
                Json::deserialize(SeqAccessDeserializer::new(list)).map(DataIn::Json)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DataIn, A::Error> {
                Json::deserialize(MapAccessDeserializer::new(map)).map(DataIn::Json)
            }
        }
        d.deserialize_any(AnyData)
    }
}

impl DataIn {
    /// The bytes below so many layers of base64.
    fn bytes(
        self,
        content_type: Option<&str>,
        layers: usize,
        is_encoded: bool,
    ) -> Result<Vec<u8>, Cow<'static, str>> {
        match self {
            Self::Json(_) if is_encoded || content_type.is_some_and(|it| it != Value::JSON) => Err(
                "`data` is JSON and no text: it has no `encoding`, and the type application/json"
                    .into(),
            ),
            Self::Json(json) => Ok(format!("{json}").into_bytes()),
            Self::Bytes(mut data) => {
                for _ in 0..layers {
                    data = BASE64.decode(data).map_err(|error| format!("{error}"))?;
                }
                Ok(data)
            }
        }
    }
}

/// Names of encodings, given as text or as a list.
struct EncodingIn(Vec<SmolStr>);

impl<'de> Deserialize<'de> for EncodingIn {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = EncodingIn;
            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("the name of an encoding, or a list of such names")
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<EncodingIn, E> {
                Ok(EncodingIn(Vec::from([SmolStr::new(v)])))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<EncodingIn, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = names.next_element()? {
                    all.push(name);
                }
                Ok(EncodingIn(all))
            }
        }
        d.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValueIn {
    content_type: Option<SmolStr>,
    data: Option<DataIn>,
    encoding: Option<EncodingIn>,
    #[serde(rename = "ref")]
    reference: Option<Ref>,
    size_bytes: Option<u64>,
    digest: Option<SmolStr>,
}

impl ValueIn {
    /// The value, with every `base64` that is outermost taken off.
    fn read(self) -> Result<Value, Cow<'static, str>> {
        let Self { content_type, data, encoding, reference, size_bytes, digest } = self;
        let mut names = encoding.map(|it| it.0).unwrap_or_default();
        let layers = names.iter().take_while(|name| *name == Encodings::BASE64).count();
        if layers > 0 && data.is_none() {
            return Err("`base64` is how `data` is written; a ref is of the bytes below it".into());
        }
        let is_encoded = !names.is_empty();
        names.drain(..layers);
        let body = match (data, reference) {
            (Some(_), None) if size_bytes.is_some() || digest.is_some() => {
                return Err("`size_bytes` and `digest` go with the ref of a blob".into());
            }
            (Some(data), None) => {
                ValueBody::Data(data.bytes(content_type.as_deref(), layers, is_encoded)?.into())
            }
            (None, Some(reference)) => Self::referred(reference, size_bytes, digest.as_deref())?,
            _ => return Err("exactly one of `data` and `ref` is needed, and not as null".into()),
        };
        let content_type = content_type.unwrap_or(SmolStr::new_static(Value::JSON));
        Ok(Value { content_type, encoding: names.into_iter().collect(), body })
    }

    /// What a ref stands for. Without size and digest even a ref that has the form of a blob's is one of
    /// something elsewhere: logs that are older than blobs may have it. K3 refuses it.
    fn referred(
        reference: Ref,
        size_bytes: Option<u64>,
        digest: Option<&str>,
    ) -> Result<ValueBody, Cow<'static, str>> {
        match (Blob::hash_in(reference.as_str()), size_bytes, digest) {
            (_, None, None) => Ok(ValueBody::Ref(reference)),
            (Some(hash), Some(size_bytes), Some(digest)) => {
                match Blob::hash_of_digest(digest) == Some(hash) {
                    true => Ok(ValueBody::Blob(Blob { hash, size_bytes })),
                    false => Err("`digest` is not `sha256:` and the hash in the ref".into()),
                }
            }
            (Some(_), ..) => Err("the ref of a blob needs `size_bytes` and `digest`".into()),
            (None, ..) => Err("`size_bytes` and `digest` go with a ref `blob:sha256:<hex>`".into()),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        ValueIn::deserialize(d)?.read().map_err(Error::custom)
    }
}

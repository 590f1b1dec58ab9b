//! What the card of an agent says, and which version and binding are spoken with it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::address::PeerUrl;
use super::error::PeerError;

/// How many offers of a card are looked at for an error, and how long a name of one may be there.
const OFFERS_MAX: usize = 10;
const OFFER_CHARS_MAX: usize = 40;

/// A version of A2A. Of two the later one is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PeerVersion {
    /// 0.3.
    #[serde(rename = "0.3")]
    V03,
    /// 1.0.
    #[serde(rename = "1.0")]
    V1,
}

impl PeerVersion {
    /// Its name in the header `A2A-Version`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
            Self::V03 => "0.3",
        }
    }
}

impl fmt::Display for PeerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PeerVersion {
    type Err = String;

    /// Reads `1.0` or `0.3`; a number of a patch behind it does not count.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.split('.');
        match (numbers.next(), numbers.next()) {
            (Some("1"), None | Some("0")) => Ok(Self::V1),
            (Some("0"), Some("3")) => Ok(Self::V03),
            _ => Err("the versions of A2A that are known here are 1.0 and 0.3".to_owned()),
        }
    }
}

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum PeerBinding {
    /// JSON-RPC 2.0.
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    /// Paths and methods of HTTP.
    #[serde(rename = "HTTP+JSON")]
    HttpJson,
}

/// Where an agent is reached, and what is spoken there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerInterface {
    /// The address.
    pub url: String,
    /// How messages travel.
    pub binding: PeerBinding,
    /// The version.
    pub version: PeerVersion,
    /// The part of the agent that is meant, if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// The card of an agent, as far as a caller needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerCard {
    /// Where it was found.
    pub url: String,
    /// The name of the agent.
    pub name: String,
    /// Where and how the agent is spoken to.
    pub interface: PeerInterface,
    /// Whether it tells what happens while it happens.
    pub streams: bool,
    /// The whole card, as its agent wrote it.
    pub text: Json,
}

/// What is read of a card, of whichever version.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CardFields {
    name: String,
    capabilities: CapabilityFields,
    /// 1.0.
    supported_interfaces: Vec<InterfaceFields>,
    /// 0.3: one address, its transport, and others beside it.
    url: Option<String>,
    preferred_transport: Option<String>,
    additional_interfaces: Vec<TransportFields>,
    protocol_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CapabilityFields {
    streaming: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InterfaceFields {
    url: String,
    protocol_binding: String,
    protocol_version: String,
    #[serde(default)]
    tenant: Option<String>,
}

#[derive(Debug, Deserialize)]
struct TransportFields {
    url: String,
    transport: String,
}

impl PeerCard {
    /// Reads a card that was found at this address, and chooses what is spoken with its agent: the latest version
    /// that both know, or the one that is wanted, by what the card names first.
    ///
    /// # Errors
    /// It is no card, or nothing in it is spoken here. A card that came over TLS leads to no address without it.
    pub fn read(url: &str, text: Json, wanted: Option<PeerVersion>) -> Result<Self, PeerError> {
        let refused = |why: String| PeerError::Card { address: url.to_owned(), why };
        let mut card: CardFields =
            CardFields::deserialize(&text).map_err(|error| refused(error.to_string()))?;
        let (name, streams) = (std::mem::take(&mut card.name), card.capabilities.streaming);
        let is_secret = PeerUrl::read(url)?.is_tls();
        let offered = card.offered(is_secret);
        let mut interface: Option<PeerInterface> = None;
        for offered in card.interfaces() {
            let is_open = !is_secret || PeerUrl::read(&offered.url).is_ok_and(|it| it.is_tls());
            let is_meant = wanted.is_none_or(|wanted| wanted == offered.version);
            let is_better = interface.as_ref().is_none_or(|known| offered.version > known.version);
            if is_open && is_meant && is_better {
                interface = Some(offered);
            }
        }
        let interface = interface.ok_or_else(|| match offered {
            None => refused("it names no address".to_owned()),
            Some(offered) => {
                let (address, needed) = (url.to_owned(), needed(wanted));
                PeerError::Offer { address, offered, needed }
            }
        })?;
        Ok(Self { url: url.to_owned(), name, interface, streams, text })
    }
}

/// What a card has to offer.
const fn needed(wanted: Option<PeerVersion>) -> &'static str {
    match wanted {
        Some(PeerVersion::V1) => "1.0 over JSON-RPC or HTTP+JSON",
        Some(PeerVersion::V03) => "0.3 over JSON-RPC",
        None => "1.0 over JSON-RPC or HTTP+JSON, or 0.3 over JSON-RPC,",
    }
}

impl CardFields {
    /// What the card offers, in words: no more of it than a reader takes in. None if it names no address.
    fn offered(&self, is_secret: bool) -> Option<String> {
        let new = self.supported_interfaces.iter();
        let new = new.map(|it| (&*it.url, &*it.protocol_version, &*it.protocol_binding));
        let version = self.protocol_version.as_deref().unwrap_or("0.3");
        let transport = self.preferred_transport.as_deref().unwrap_or("JSONRPC");
        let preferred = self.url.iter().map(|url| (&**url, version, transport));
        let others = self.additional_interfaces.iter();
        let others = others.map(|it| (&*it.url, version, &*it.transport));
        let in_words = |(url, version, binding): (&str, &str, &str)| {
            let short = |text: &str| text.chars().take(OFFER_CHARS_MAX).collect::<String>();
            let is_open = is_secret && PeerUrl::read(url).is_ok_and(|it| !it.is_tls());
            let how = if is_open { " without TLS" } else { "" };
            format!("{} over {}{how}", short(version), short(binding))
        };
        let all: BTreeSet<String> =
            new.chain(preferred).chain(others).take(OFFERS_MAX).map(in_words).collect();
        (!all.is_empty()).then(|| all.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// What is spoken here of all that the card offers, in its order.
    fn interfaces(self) -> Vec<PeerInterface> {
        let new = self.supported_interfaces.into_iter().filter_map(InterfaceFields::known);
        let version = self.protocol_version.as_deref().map_or(Ok(PeerVersion::V03), str::parse);
        let of_old = |url: String, transport: &str| {
            let is_known = version == Ok(PeerVersion::V03) && transport == "JSONRPC";
            let (binding, version) = (PeerBinding::JsonRpc, PeerVersion::V03);
            is_known.then_some(PeerInterface { url, binding, version, tenant: None })
        };
        let transport = self.preferred_transport.as_deref().unwrap_or("JSONRPC");
        let preferred = self.url.and_then(|url| of_old(url, transport));
        let others = self.additional_interfaces.into_iter();
        let others = others.filter_map(|it| of_old(it.url, &it.transport));
        new.chain(preferred).chain(others).collect()
    }
}

impl InterfaceFields {
    /// The interface, if it is spoken here.
    fn known(self) -> Option<PeerInterface> {
        let version = self.protocol_version.parse().ok()?;
        let binding = match &*self.protocol_binding {
            "JSONRPC" => PeerBinding::JsonRpc,
            "HTTP+JSON" if version == PeerVersion::V1 => PeerBinding::HttpJson,
            _ => return None,
        };
        let tenant = self.tenant.filter(|tenant| !tenant.is_empty());
        Some(PeerInterface { url: self.url, binding, version, tenant })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chosen(
        card: Json,
        wanted: Option<PeerVersion>,
    ) -> Option<(String, PeerBinding, PeerVersion)> {
        let read = PeerCard::read("http://one/a", card, wanted).ok()?;
        let PeerInterface { url, binding, version, .. } = read.interface;
        Some((url, binding, version))
    }

    fn interface(url: &str, binding: &str, version: &str) -> Json {
        json!({"url": url, "protocolBinding": binding, "protocolVersion": version})
    }

    use PeerBinding::{HttpJson, JsonRpc};
    use PeerVersion::{V1, V03};

    /// The latest version that both know is spoken, and of its bindings the one that the card names first.
    #[test]
    fn the_latest_version_is_spoken_by_the_first_binding() {
        let several = json!({"name": "a", "supportedInterfaces": [
            interface("grpc://one", "GRPC", "1.0"),
            interface("http://old", "JSONRPC", "0.3"),
            interface("http://rest", "HTTP+JSON", "1.0.1"),
            interface("http://rpc", "JSONRPC", "1.0"),
            interface("http://new", "JSONRPC", "2.0"),
        ]});
        assert_eq!(chosen(several.clone(), None), Some(("http://rest".into(), HttpJson, V1)));
        assert_eq!(chosen(several, Some(V03)), Some(("http://old".into(), JsonRpc, V03)));
    }

    /// A card of 0.3 has one address with a transport, and may name others beside it.
    #[test]
    fn a_card_of_0_3_is_understood() {
        let card = |more: Json| {
            let mut card = json!({"name": "a", "url": "http://main", "protocolVersion": "0.3.0"});
            card.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            card
        };
        let main = Some(("http://main".to_owned(), JsonRpc, V03));
        assert_eq!(chosen(card(json!({})), None), main);
        assert_eq!(chosen(card(json!({"preferredTransport": "JSONRPC"})), None), main);
        let other = card(json!({
            "preferredTransport": "GRPC",
            "additionalInterfaces": [
                {"url": "http://rest", "transport": "HTTP+JSON"},
                {"url": "http://rpc", "transport": "JSONRPC"},
            ],
        }));
        assert_eq!(chosen(other, None), Some(("http://rpc".into(), JsonRpc, V03)));
        assert_eq!(chosen(card(json!({"protocolVersion": "0.2.5"})), None), None);
        assert_eq!(chosen(card(json!({})), Some(V1)), None);
    }

    /// A card with both forms, as some servers write it, leads to 1.0.
    #[test]
    fn a_card_of_both_versions_leads_to_the_later_one() {
        let both = json!({
            "name": "a", "url": "http://old", "protocolVersion": "0.3.0",
            "supportedInterfaces": [interface("http://new", "JSONRPC", "1.0")],
        });
        assert_eq!(chosen(both, None), Some(("http://new".into(), JsonRpc, V1)));
    }

    /// What is spoken over TLS is not handed on to an address without it.
    #[test]
    fn a_card_over_tls_leads_to_no_address_without() {
        let card = |url: &str| json!({"name": "a", "supportedInterfaces": [interface(url, "JSONRPC", "1.0")]});
        let read = |url: &str| PeerCard::read("https://one/a", card(url), None);
        assert!(read("https://one/rpc").is_ok());
        assert!(read("http://one/rpc").is_err());
    }

    /// Signatures of a card are not looked at. They stay in its text, for who knows the keys.
    #[test]
    fn signatures_of_a_card_are_kept() {
        let signatures = json!([{"protected": "e30", "signature": "QFdk", "header": {"kid": "k"}}]);
        let card = json!({
            "name": "a",
            "supportedInterfaces": [interface("http://one", "JSONRPC", "1.0")],
            "signatures": signatures,
        });
        let read = PeerCard::read("http://one/a", card.clone(), None).unwrap();
        assert_eq!(read.text, card);
    }

    /// A card that offers something else is told apart from one that is not there, with what it offers.
    #[test]
    fn what_a_card_offers_is_told_if_it_is_not_wanted() {
        let offered = |url: &str, card: Json, wanted| match PeerCard::read(url, card, wanted) {
            Err(error @ PeerError::Offer { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let new = json!({"supportedInterfaces": [
            interface("http://one", "JSONRPC", "1.0"), interface("http://one", "GRPC", "1.0"),
        ]});
        assert_eq!(
            offered("http://one/a", new.clone(), Some(V03)),
            "the card at http://one/a offers 1.0 over GRPC, 1.0 over JSONRPC; 0.3 over JSON-RPC is needed"
        );
        let open = offered("https://one/a", new, None);
        assert!(open.contains("1.0 over JSONRPC without TLS"), "{open}");
        let old = json!({"url": "http://one", "protocolVersion": "0.2.5"});
        let old = offered("http://one/a", old, None);
        assert!(old.contains("offers 0.2.5 over JSONRPC"), "{old}");
        let long = json!({"supportedInterfaces": vec![interface("http://one", &"x".repeat(99_999), "9"); 99]});
        assert!(offered("http://one/a", long, None).len() < 1_000);
    }

    #[test]
    fn what_is_no_card_is_refused() {
        for text in [json!([]), json!({}), json!({"name": 7}), json!("a")] {
            assert!(PeerCard::read("http://one/a", text.clone(), None).is_err(), "{text}");
        }
    }
}

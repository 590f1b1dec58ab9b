//! What the fuzzer must notice, and that a seed draws the same again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value as Json, json};

use super::{Corpus, Draw, InputForm, fuzz, instance, mutate};

fn caught(corpus: &Corpus, decode: impl FnMut(&[u8]) -> bool) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| fuzz("a target", corpus, decode))).unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap()
}

#[test]
fn a_panic_is_found_and_made_shorter() {
    let corpus = Corpus::new(InputForm::Bytes, [b"a long sample {with} much in it".to_vec()]);
    let said = caught(&corpus.with_tokens(&["%%"]), |bytes| {
        assert!(!bytes.windows(2).any(|two| two == b"%%"), "there it is");
        true
    });
    assert!(said.contains("it panics: there it is"), "{said}");
    assert!(said.ends_with("made shorter to 2: %%"), "{said}");
}

#[test]
fn an_input_that_takes_too_long_is_found() {
    let corpus = Corpus::new(InputForm::Bytes, [b"!".to_vec()]);
    let mut count = 0_u64;
    let said = caught(&corpus, |bytes| {
        let begun = super::cpu();
        while bytes.contains(&b'!') && super::cpu() - begun <= super::CPU_MAX {
            count = std::hint::black_box(count.wrapping_add(1));
        }
        true
    });
    assert!(said.contains("of the processor"), "{said}");
}

#[test]
fn samples_that_nothing_reads_are_a_fault() {
    let corpus = Corpus::new(InputForm::Json, [b"{}".to_vec()]);
    assert!(caught(&corpus, |_| false).contains("no input was decoded"));
}

#[test]
fn a_seed_draws_the_same_inputs() {
    let sample = vec![b"{\"a\": [1, {\"b\": \"text\"}], \"n\": 17}".to_vec()];
    let inputs = |seed| -> Vec<Vec<u8>> {
        let mut draw = Draw::new(seed);
        (0..300).map(|_| mutate::input(&mut draw, InputForm::Json, (&sample, &[]), &[])).collect()
    };
    assert_eq!(inputs(3), inputs(3));
    assert_ne!(inputs(3), inputs(4));
    let is_json = |input: &&Vec<u8>| serde_json::from_slice::<Json>(input).is_ok();
    assert!(inputs(3).iter().filter(is_json).count() > 100, "many are still JSON");
}

#[test]
fn what_is_made_of_a_schema_fits_it() {
    let root = json!({
        "inputs": { "Id": { "type": "string", "format": "uuid" } },
        "type": "object", "required": ["id", "n"],
        "properties": {
            "id": { "$ref": "#/inputs/Id" }, "n": { "type": ["integer"], "minimum": 3 },
            "all": { "type": "array", "minItems": 2, "items": { "enum": ["x", "y"] } },
        },
    });
    let mut draw = Draw::new(1);
    for _ in 0..50 {
        let made = instance(&mut draw, &root, &root);
        assert_eq!(made["id"], "01900000-0000-7000-8000-000000000001");
        assert!(made["n"].as_i64() >= Some(3), "{made}");
        if let Some(all) = made["all"].as_array() {
            assert!(all.len() >= 2 && all.iter().all(|it| it == "x" || it == "y"), "{made}");
        }
    }
}

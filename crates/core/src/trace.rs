//! W3C `traceparent`: a span of another program, below which the spans of a command belong.

/// The content of a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; never 0.
    pub trace: u128,
    /// The span; never 0.
    pub span: u64,
    /// Whether its trace is recorded.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Characters of version 00; later versions may have more after them.
    pub const LENGTH: usize = 55;

    /// Reads a `traceparent`; `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let is_known = bytes.starts_with(b"00-");
        let fits =
            bytes.len() == Self::LENGTH || !is_known && bytes.get(Self::LENGTH) == Some(&b'-');
        if !fits || [2, 35, 52].iter().any(|at| bytes[*at] != b'-') {
            return None;
        }
        // This is read for every Attempt, so it has no branch for each digit.
        let (version, flags) = (number(&bytes[..2])?, number(&bytes[53..55])?);
        let (high, low) = (number(&bytes[3..19])?, number(&bytes[19..35])?);
        let (trace, span) = (u128::from(high) << 64 | u128::from(low), number(&bytes[36..52])?);
        let is_valid = version != 0xff && trace != 0 && span != 0;
        is_valid.then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// The value of each hexadecimal digit, in small letters; of any other byte 255.
const DIGITS: [u8; 256] = {
    let (mut digits, names, mut value) = ([u8::MAX; 256], b"0123456789abcdef", 0);
    while value < 16 {
        digits[names[value as usize] as usize] = value;
        value += 1;
    }
    digits
};

/// The number that these hexadecimal digits are; at most 16 of them.
fn number(digits: &[u8]) -> Option<u64> {
    let (mut number, mut all) = (0, 0);
    for digit in digits {
        let value = DIGITS[usize::from(*digit)];
        all |= value;
        number = number << 4 | u64::from(value & 15);
    }
    (all < 16).then_some(number)
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read() {
        let parent = TraceParent::parse(GOOD).unwrap();
        assert_eq!(parent.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(parent.span, 0x00f0_67aa_0ba9_02b7);
        assert!(parent.is_sampled);
        assert!(!TraceParent::parse(&GOOD.replace("-01", "-00")).unwrap().is_sampled);
        assert!(TraceParent::parse(&format!("{}-more", GOOD.replace("00-4b", "01-4b"))).is_some());
    }

    #[test]
    fn what_is_not_a_traceparent_is_nothing() {
        let zeros = "0".repeat(32);
        for bad in [
            String::new(),
            "x".repeat(TraceParent::LENGTH),
            "ä".repeat(TraceParent::LENGTH / 2) + "x",
            GOOD[1..].into(),
            format!("{GOOD}-more"),
            GOOD.replace("00-4b", "ff-4b"),
            GOOD.replace("4bf92f", "4BF92F"),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros),
            GOOD.replace("00f067aa0ba902b7", &zeros[..16]),
            GOOD.replace("-01", "-0x"),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
    }
}

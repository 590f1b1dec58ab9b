//! CRC-32 as in IEEE 802.3, bit by bit: slow, and easy to see through.

/// The checksum of these pieces as one text.
pub(super) fn crc32(pieces: &[&[u8]]) -> u32 {
    let bytes = pieces.iter().flat_map(|piece| piece.iter());
    !bytes.fold(u32::MAX, |crc, &byte| step(crc ^ u32::from(byte)))
}

fn step(crc: u32) -> u32 {
    (0..8).fold(crc, |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn the_check_value_of_the_standard_comes_out() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
    }
}

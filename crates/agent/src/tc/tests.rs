//! Filters as bytes of the kernel's.

use super::*;
use crate::netlink::nla;

fn body(handle: u32, priority: u32, attributes: &[u8]) -> Vec<u8> {
    let mut body = vec![0; TCMSG_BYTES];
    body[8..12].copy_from_slice(&handle.to_ne_bytes());
    body[16..20].copy_from_slice(&(priority << 16 | 0x0300).to_ne_bytes());
    body.extend(attributes);
    body
}

#[test]
fn a_filter_is_known_by_its_place_and_its_program() {
    let options = [nla(TCA_BPF_NAME, b"to_vm:[77]\0"), nla(TCA_BPF_ID, &77u32.to_ne_bytes())].concat();
    let found = filter(&body(HANDLE, PRIORITY, &nla(TCA_OPTIONS, &options))).unwrap();
    assert!(found.is_at_own_place() && found.has_program("to_vm") && !found.has_program("to"));
    assert_eq!(found.program, Some(77));
    let other = filter(&body(1, PRIORITY, &nla(TCA_OPTIONS, &options))).unwrap();
    assert!(!other.is_at_own_place());
    // One of another kind, as u32 or flower.
    let other = filter(&body(HANDLE, PRIORITY, &nla(1, b"u32\0"))).unwrap();
    assert_eq!((other.program, other.has_program("to_vm")), (None, false));
    // The head of a priority is no filter, and neither is what is cut short.
    assert_eq!(filter(&body(0, PRIORITY, &[])), None);
    assert_eq!(filter(&[0; TCMSG_BYTES - 1]), None);
}

//! `RDMA_NL_NLDEV`: the kernel's own list of queue pairs. Encoding and decoding only.
//!
//! Source: the kernel's `include/uapi/rdma/rdma_netlink.h`. Queue pairs that are made by DEVX, as UCX
//! makes its own on mlx5, are not in it.

use super::super::netlink::{self, DumpError, attribute, attributes, messages, u32_at};

/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, …)`.
const fn kind(command: u16) -> u16 {
    (5 << 10) + command
}

/// `RDMA_NLDEV_CMD_GET`, `RDMA_NLDEV_CMD_RES_QP_GET`.
const DEVICES: u16 = kind(1);
const QUEUES: u16 = kind(10);
/// `RDMA_NLDEV_ATTR_…`.
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const RES_QP: u16 = 19;
const RES_LQPN: u16 = 21;
const RES_RQPN: u16 = 22;
const RES_STATE: u16 = 27;
const RES_PID: u16 = 28;

/// A queue pair of some process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    /// Its device.
    pub(super) device: String,
    /// Its number.
    pub(super) number: u32,
    /// Its far end's; 0 where it has none.
    pub(super) far: u32,
    /// `enum ib_qp_state`.
    pub(super) state: u32,
    /// Its process; as the kernel says it, the thread that made it, and 0 where that has ended.
    pub(super) pid: u32,
}

/// A request for every device.
pub(super) fn devices() -> Vec<u8> {
    netlink::request(DEVICES, &[])
}

/// A request for the queue pairs of a device.
pub(super) fn queues(device: u32) -> Vec<u8> {
    let mut body = 8_u16.to_ne_bytes().to_vec();
    body.extend_from_slice(&DEV_INDEX.to_ne_bytes());
    body.extend_from_slice(&device.to_ne_bytes());
    netlink::request(QUEUES, &body)
}

/// Decodes a part of the answer: numbers and names. `true` when it is complete.
pub(super) fn parse_devices(bytes: &[u8], to: &mut Vec<(u32, String)>) -> Result<bool, DumpError> {
    messages(bytes, DEVICES, |message| {
        let number = attribute(message, DEV_INDEX).and_then(|bytes| u32_at(bytes, 0));
        to.extend(number.zip(attribute(message, DEV_NAME).map(text)));
    })
}

/// Decodes a part of the answer. Queue pairs of the kernel itself have no process.
pub(super) fn parse_queues(bytes: &[u8], to: &mut Vec<Pair>) -> Result<bool, DumpError> {
    messages(bytes, QUEUES, |message| {
        let device = attribute(message, DEV_NAME).map(text).unwrap_or_default();
        let entries = attribute(message, RES_QP).into_iter().flat_map(attributes);
        to.extend(entries.filter_map(|(_, entry)| pair(&device, entry)));
    })
}

fn pair(device: &str, entry: &[u8]) -> Option<Pair> {
    let number = |kind| attribute(entry, kind).and_then(|bytes| u32_at(bytes, 0));
    let state = attribute(entry, RES_STATE).and_then(|bytes| bytes.first().copied());
    Some(Pair {
        device: device.to_owned(),
        number: number(RES_LQPN)?,
        far: number(RES_RQPN).unwrap_or(0),
        state: u32::from(state?),
        pid: number(RES_PID).unwrap_or(0),
    })
}

fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(kind: u16, payload: &[u8]) -> Vec<u8> {
        let len = u16::try_from(4 + payload.len()).unwrap();
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    const RES_QP_ENTRY: u16 = 20;
    /// `NLA_F_NESTED`.
    const NESTED: u16 = 1 << 15;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        netlink::request(kind, body)
    }

    #[test]
    fn devices_have_a_number_and_a_name() {
        let body = [attr(DEV_INDEX, &3_u32.to_ne_bytes()), attr(DEV_NAME, b"mlx5_0\0")].concat();
        let mut bytes = message(DEVICES, &body);
        bytes.extend(message(netlink::DONE, &[]));
        let mut found = Vec::new();
        assert_eq!(parse_devices(&bytes, &mut found), Ok(true));
        assert_eq!(found, [(3, "mlx5_0".to_owned())]);
    }

    #[test]
    fn a_queue_pair_says_whose_it_is_and_where_it_leads() {
        let entry = |pid: Option<u32>| {
            let mut entry = attr(RES_LQPN, &17_u32.to_ne_bytes());
            entry.extend(attr(RES_RQPN, &18_u32.to_ne_bytes()));
            entry.extend(attr(RES_STATE, &[3]));
            entry.extend(pid.map(|pid| attr(RES_PID, &pid.to_ne_bytes())).unwrap_or_default());
            // Nested attributes are marked as such.
            attr(RES_QP_ENTRY | NESTED, &entry)
        };
        let table = attr(RES_QP | NESTED, &[entry(Some(99)), entry(None)].concat());
        let body = [attr(DEV_NAME, b"rxe0\0"), table].concat();
        let mut found = Vec::new();
        assert_eq!(parse_queues(&message(QUEUES, &body), &mut found), Ok(false));
        let right = Pair { device: "rxe0".to_owned(), number: 17, far: 18, state: 3, pid: 99 };
        let kernels = Pair { pid: 0, ..right.clone() };
        assert_eq!(found, [right, kernels], "those of the kernel have no process");
    }

    #[test]
    fn what_the_kernel_asks_for_is_a_device_by_its_number() {
        let bytes = queues(5);
        assert_eq!(bytes.len(), 24);
        assert_eq!(
            attribute(bytes.get(netlink::HEADER..).unwrap(), DEV_INDEX),
            Some(&[5, 0, 0, 0][..])
        );
    }
}

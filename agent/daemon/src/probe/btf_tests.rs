use super::*;

/// Type information as a compiler would write it.
#[derive(Default)]
struct Writer {
    types: Vec<u32>,
    strings: Vec<u8>,
    strings_before: u32,
}

impl Writer {
    fn text(&mut self, text: &str) -> u32 {
        if self.strings.is_empty() && self.strings_before == 0 {
            self.strings.push(0);
        }
        let at = self.strings_before + u32::try_from(self.strings.len()).unwrap();
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        if text.is_empty() { 0 } else { at }
    }

    fn int(&mut self) {
        let name = self.text("u32");
        self.types.extend([name, 1 << 24, 4, 32]);
    }

    fn typedef(&mut self, name: &str, of: u32) {
        let name = self.text(name);
        self.types.extend([name, TYPEDEF << 24, of]);
    }

    fn structure(&mut self, name: &str, bit_fields: bool, members: &[(&str, u32, u32)]) {
        let name = if name.is_empty() { 0 } else { self.text(name) };
        let count = u32::try_from(members.len()).unwrap();
        self.types.extend([name, u32::from(bit_fields) << 31 | STRUCT << 24 | count, 0]);
        for (name, id, bits) in members {
            let name = if name.is_empty() { 0 } else { self.text(name) };
            self.types.extend([name, *id, *bits]);
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let types = u32::try_from(self.types.len() * 4).unwrap();
        let strings = u32::try_from(self.strings.len()).unwrap();
        let mut words = vec![u32::from(MAGIC) | 1 << 16, 24, 0, types, types, strings];
        words.extend(&self.types);
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        bytes.extend(&self.strings);
        bytes
    }
}

/// 1 an integer, 2 a nameless structure, 3 `inner`, 4 a name for it, 5 `outer`.
fn kernel() -> Writer {
    let mut writer = Writer::default();
    writer.int();
    writer.structure("", false, &[("hidden", 1, 32)]);
    writer.structure("inner", false, &[("first", 1, 0), ("", 2, 64)]);
    writer.typedef("inner_t", 3);
    writer.structure("outer", true, &[("flag", 1, 3 << 24), ("inner", 4, 128)]);
    writer
}

#[test]
fn a_field_is_found_by_its_path_through_names_and_nameless_structures() {
    let btf = Btf::parse(kernel().bytes(), None).unwrap();
    assert_eq!(btf.offset("inner", &["first"]), Ok(0));
    assert_eq!(btf.offset("inner", &["hidden"]), Ok(12));
    assert_eq!(btf.offset("outer", &["inner", "hidden"]), Ok(28));
    assert_eq!(btf.offset("outer", &["flag"]), Ok(0));
    let missing = btf.offset("outer", &["inner", "none"]).unwrap_err().to_string();
    assert_eq!(missing, "the kernel's structure outer has no field inner.none");
    assert_eq!(btf.offset("nobody", &["x"]), Err(BtfError::NoStruct("nobody".to_owned())));
}

#[test]
fn the_types_of_a_module_go_on_where_the_kernels_end() {
    let base = kernel();
    let mut module =
        Writer { strings_before: u32::try_from(base.strings.len()).unwrap(), ..Writer::default() };
    // 6 refers to a type of the kernel.
    module.structure("driver", false, &[("common", 5, 64), ("own", 1, 512)]);
    let base = Btf::parse(base.bytes(), None).unwrap();
    let module = Btf::parse(module.bytes(), Some(&base)).unwrap();
    assert_eq!(module.offset("driver", &["common", "inner", "hidden"]), Ok(36));
    assert_eq!(module.offset("driver", &["own"]), Ok(64));
    assert_eq!(module.offset("outer", &["inner"]), Ok(16), "what the kernel has, too");
}

#[test]
fn what_is_no_type_information_is_refused() {
    let whole = kernel().bytes();
    for cut in [0, 3, 20, 30, whole.len() - 1] {
        assert!(Btf::parse(whole[..cut].to_vec(), None).is_err(), "{cut}");
    }
    let mut other = whole.clone();
    other[0] = 1;
    assert_eq!(Btf::parse(other, None).unwrap_err(), BtfError::Form("it begins otherwise"));
    let mut unknown = whole;
    unknown[24 + 7] = 31;
    assert!(Btf::parse(unknown, None).is_err());
}

#[test]
fn this_kernels_own_structures_are_found() {
    let btf = match Btf::of_kernel() {
        Ok(btf) => btf,
        // A kernel without type information is below what the agent needs.
        Err(error) => panic!("{error}"),
    };
    assert!(btf.offset("task_struct", &["tgid"]).unwrap() > 0);
    let pid = btf.offset("task_struct", &["pid"]).unwrap();
    assert_eq!(btf.offset("task_struct", &["tgid"]), Ok(pid + 4));
    assert_eq!(btf.offset("list_head", &["prev"]), Ok(8));
}

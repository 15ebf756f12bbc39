//! What a kernel's type information (BTF) says of it.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Func, Struct};

/// What can be asked of types.
pub(super) trait Types {
    /// Whether there is a structure of this name.
    fn has_struct(&self, name: &str) -> bool;
    /// Whether there is a function of this name.
    fn has_function(&self, name: &str) -> bool;
    /// Whether an enumeration has this value.
    fn has_value(&self, enumeration: &str, value: &str) -> bool;
}

impl Types for Btf<'_> {
    fn has_struct(&self, name: &str) -> bool {
        self.type_by_name::<Struct<'_>>(name).is_some()
    }

    fn has_function(&self, name: &str) -> bool {
        self.type_by_name::<Func<'_>>(name).is_some()
    }

    fn has_value(&self, enumeration: &str, value: &str) -> bool {
        let values = self.type_by_name::<Enum<'_>>(enumeration);
        values.is_some_and(|values| values.iter().any(|member| member.name.is_some_and(|name| name == value)))
    }
}

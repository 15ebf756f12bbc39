//! Values of columns, and their types.

/// Type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// 64 bits, with a sign.
    Integer,
    /// 64 bits, without.
    Natural,
    /// Double precision.
    Number,
    /// True or false.
    Truth,
}

impl Kind {
    /// As Parquet's documents name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "STRING",
            Self::Integer => "INT64",
            Self::Natural => "UINT64",
            Self::Number => "DOUBLE",
            Self::Truth => "BOOLEAN",
        }
    }
}

/// A column's values.
#[derive(Debug, PartialEq)]
pub enum Values {
    /// [`Kind::Text`].
    Text(Vec<Option<String>>),
    /// [`Kind::Integer`].
    Integer(Vec<Option<i64>>),
    /// [`Kind::Natural`].
    Natural(Vec<Option<u64>>),
    /// [`Kind::Number`].
    Number(Vec<Option<f64>>),
    /// [`Kind::Truth`].
    Truth(Vec<Option<bool>>),
}

impl Values {
    /// How many rows it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Integer(values) => values.len(),
            Self::Natural(values) => values.len(),
            Self::Number(values) => values.len(),
            Self::Truth(values) => values.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their type.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Integer(_) => Kind::Integer,
            Self::Natural(_) => Kind::Natural,
            Self::Number(_) => Kind::Number,
            Self::Truth(_) => Kind::Truth,
        }
    }
}

/// What a column can have in a row.
pub(super) trait Scalar: Sized {
    /// Its type in the file.
    const KIND: Kind;
    /// A column of such.
    fn values(values: Vec<Option<Self>>) -> Values;
    /// The other way round, or the column itself if it is of another type.
    fn of_values(values: Values) -> Result<Vec<Option<Self>>, Values>;
}

impl Scalar for String {
    const KIND: Kind = Kind::Text;
    fn values(values: Vec<Option<Self>>) -> Values {
        Values::Text(values)
    }
    fn of_values(values: Values) -> Result<Vec<Option<Self>>, Values> {
        if let Values::Text(values) = values { Ok(values) } else { Err(values) }
    }
}

impl Scalar for i64 {
    const KIND: Kind = Kind::Integer;
    fn values(values: Vec<Option<Self>>) -> Values {
        Values::Integer(values)
    }
    fn of_values(values: Values) -> Result<Vec<Option<Self>>, Values> {
        if let Values::Integer(values) = values { Ok(values) } else { Err(values) }
    }
}

impl Scalar for u64 {
    const KIND: Kind = Kind::Natural;
    fn values(values: Vec<Option<Self>>) -> Values {
        Values::Natural(values)
    }
    fn of_values(values: Values) -> Result<Vec<Option<Self>>, Values> {
        if let Values::Natural(values) = values { Ok(values) } else { Err(values) }
    }
}

impl Scalar for f64 {
    const KIND: Kind = Kind::Number;
    fn values(values: Vec<Option<Self>>) -> Values {
        Values::Number(values)
    }
    fn of_values(values: Values) -> Result<Vec<Option<Self>>, Values> {
        if let Values::Number(values) = values { Ok(values) } else { Err(values) }
    }
}

impl Scalar for bool {
    const KIND: Kind = Kind::Truth;
    fn values(values: Vec<Option<Self>>) -> Values {
        Values::Truth(values)
    }
    fn of_values(values: Values) -> Result<Vec<Option<Self>>, Values> {
        if let Values::Truth(values) = values { Ok(values) } else { Err(values) }
    }
}

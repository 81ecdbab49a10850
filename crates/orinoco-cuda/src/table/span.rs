//! A filled table where kernels read it.
#![expect(unsafe_code, reason = "whether a table is filled, only the caller knows")]

use super::layout::TableLayout;
use crate::span::Span;

/// A filled table as kernels take it.
#[derive(Clone, Debug)]
pub struct TableSpan {
    span: Span,
    batch: usize,
    filters: Option<Span>,
}

impl TableSpan {
    /// A table in memory of the caller's, which `layout` has filled.
    ///
    /// # Safety
    /// `span` holds what [`TableLayout::set`] and [`TableLayout::clear`] of `layout` wrote, or zeros, whenever a kernel
    /// reads it, and the frames named in it are still there.
    pub unsafe fn foreign(span: Span, layout: &TableLayout) -> Self {
        Self::new(span, layout)
    }

    pub(crate) fn new(span: Span, layout: &TableLayout) -> Self {
        assert_eq!(span.bytes(), layout.bytes(), "the bytes of {layout:?}");
        let at = layout.filters_offset();
        let filters = layout.has_filters().then(|| span.part(at, span.bytes() - at));
        Self { batch: layout.batch(), filters, span }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    pub(crate) fn filters(&self) -> Option<&Span> {
        self.filters.as_ref()
    }
}

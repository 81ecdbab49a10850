//! Inputs beside the main one: constants, and states that a model carries from run to run.

use orinoco_model::{Binding, ExtraInputValue, Model};

use crate::engine::Session;

/// What a model's inputs are bound with before its first run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeInputs {
    /// One shape per input.
    pub shapes: Vec<Vec<usize>>,
    /// Inputs by index that hold the same every time; one number fills the whole tensor. All others start as zeros.
    pub constants: Vec<(usize, Vec<f32>)>,
}

impl ProbeInputs {
    /// Shapes and constants of `model` as `binding` places them.
    pub fn new(model: &Model, binding: &Binding) -> Self {
        let extra_inputs = model.extra_inputs.iter().zip(&binding.extra_inputs);
        let constants = extra_inputs.filter_map(|(extra_input, input)| match &extra_input.value {
            ExtraInputValue::Constant(values) => Some((*input, values.clone())),
            ExtraInputValue::State(_) => None,
        });
        Self { shapes: binding.shapes.clone(), constants: constants.collect() }
    }

    /// Writes the constants into the inputs of a session, which are in the host's memory.
    pub fn write_constants(&self, session: &mut dyn Session) {
        self.constants.iter().for_each(|(input, values)| fill(session, *input, values));
    }
}

/// Outputs that go back into inputs after each run.
#[derive(Default)]
pub(crate) struct States(Vec<State>);

struct State {
    input: usize,
    output: usize,
    carried: Vec<f32>,
}

impl States {
    /// Those of a model as `binding` places them.
    pub(crate) fn new(binding: &Binding) -> Self {
        let states = binding.extra_inputs.iter().zip(&binding.states).filter_map(|(input, output)| {
            output.map(|output| State { input: *input, output, carried: Vec::new() })
        });
        Self(states.collect())
    }

    /// Puts the outputs of the latest run into their inputs.
    pub(crate) fn carry(&mut self, session: &mut dyn Session) {
        for state in &mut self.0 {
            session.output(state.output).host().data.to_f32(&mut state.carried);
            session.input(state.input).host().data.copy_from_f32(&state.carried);
        }
    }

    /// Makes them zero again.
    pub(crate) fn reset(&mut self, session: &mut dyn Session) {
        self.0.iter().for_each(|state| fill(session, state.input, &[0.0]));
    }
}

/// Writes `values` into an input; a single one everywhere.
fn fill(session: &mut dyn Session, input: usize, values: &[f32]) {
    let mut tensor = session.input(input).host().data;
    match values {
        [one] => tensor.copy_from_f32(&vec![*one; tensor.len()]),
        all => tensor.copy_from_f32(all),
    }
}

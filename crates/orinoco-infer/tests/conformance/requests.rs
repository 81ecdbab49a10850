//! A client's tensors through a model that frames run through, too.

use std::sync::Arc;

use orinoco_core::{
    Clock, ElementType, FrameDesc, InferenceResult, ModelId, Nanos, PixelFormat, Tensor, codes,
};
use orinoco_infer::{Engine, EngineContext, ImagePlan, SessionSpec};
use orinoco_model::{Model, ModelInput};
use orinoco_pipeline::{
    Answer, Executor, Frame, MonotonicClock, NextAnswer, Priority, Request, RequestInputs, Slot, SlotPool,
    answer_channel,
};
use orinoco_vision::{Fit, HeadSpec, heads};

use crate::support::{engines_here, one_node};

/// Elements of one image of the model.
const ITEM: usize = 3 * 8 * 8;

/// `y = Relu(x)` for images of 8 by 8 pixels with a border, in batches of 2.
fn plan(engine: &dyn Engine, context: &EngineContext) -> ImagePlan {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("relu.onnx");
    std::fs::write(&file, one_node("Relu", 1, &["n", "3", "8", "8"])).expect("there is room");
    let prepared = engine.prepare(&file, context).expect("each engine has this operator");
    let mut model = Model::guess(&file, prepared.inputs(), prepared.outputs()).expect("it takes images");
    model.head = HeadSpec::new(heads::RAW, 0);
    let ModelInput::Image(image) = &mut model.input else { panic!("it takes images") };
    image.fit = Fit::Letterbox;
    image.fill = 77;
    let binding = model.bind(prepared.inputs(), prepared.outputs(), 2).expect("it fits");
    let session = prepared.session(&SessionSpec::new(&binding.shapes)).expect("it is bound");
    let clock = Arc::new(MonotonicClock::default());
    ImagePlan::new(&model, &binding, prepared.as_ref(), session, context, clock).expect("it runs")
}

/// A frame of 8 by 4 pixels.
fn frame() -> Frame {
    let desc = FrameDesc::packed(PixelFormat::Gray8, 8, 4);
    let mut slot = SlotPool::new(1, desc.bytes_needed()).try_take().expect("it is free");
    slot.bytes.iter_mut().zip(0..).for_each(|(byte, value)| *byte = value);
    Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits")
}

/// Result of inferring it.
fn infer(plan: &mut ImagePlan) -> InferenceResult {
    let mut results = InferenceResult::default();
    plan.execute(&[frame()], std::slice::from_mut(&mut results)).expect("it runs");
    results
}

fn tensor(name: &str, items: usize, values: &[f32]) -> Tensor {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor::new(name, ElementType::F32, vec![items, 3, 8, 8], bytes).expect("it has as many")
}

/// The answer to a request.
fn ask(plan: &mut ImagePlan, inputs: RequestInputs) -> Answer {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let (answers, receiver) = answer_channel(&clock);
    let (model, name, deadline, priority) = (ModelId(0), "relu".into(), None, Priority::default());
    plan.answer(Request { model, name, inputs, deadline, priority, answers });
    match receiver.poll() {
        NextAnswer::Answer(answer) => answer,
        other => panic!("it is answered at once, and got {other:?}"),
    }
}

/// The answer to a request with these tensors, or the cause of its fault.
fn ask_tensors(plan: &mut ImagePlan, tensors: Vec<Tensor>) -> Result<Vec<Tensor>, String> {
    match ask(plan, RequestInputs::Tensors(tensors)) {
        Answer::Last(outputs) => Ok(outputs),
        Answer::Failed(why) => {
            assert_eq!(why.code.id, codes::REQUEST_INVALID.id, "{why}");
            Err(why.cause)
        }
        other => panic!("it is answered with {other:?}"),
    }
}

#[test]
fn images_of_a_request_get_the_results_of_frames() {
    for engine in engines_here() {
        let context = EngineContext::default();
        let mut plan = plan(engine, &context);
        let expected = infer(&mut plan);
        // More than a batch.
        let images = (0..3).map(|_| frame()).collect();
        match ask(&mut plan, RequestInputs::Images(images)) {
            Answer::Results(results) => assert_eq!(results, vec![expected; 3], "{}", engine.name()),
            other => panic!("{}: it is answered with {other:?}", engine.name()),
        }
    }
}

#[test]
fn requests_and_frames_share_a_model() {
    for engine in engines_here() {
        let context = EngineContext::default();
        let mut plan = plan(engine, &context);
        let before = infer(&mut plan);
        let values: Vec<f32> = (0..2 * ITEM).map(|index| index as f32 - 100.5).collect();
        for items in [2, 1] {
            let values = &values[..items * ITEM];
            let expected: Vec<f32> = values.iter().map(|value| value.max(0.0)).collect();
            let answer = ask_tensors(&mut plan, vec![tensor("x", items, values)]);
            assert_eq!(answer, Ok(vec![tensor("y", items, &expected)]), "{}", engine.name());
        }
        // The border around a frame is drawn again.
        assert_eq!(infer(&mut plan), before, "{}", engine.name());
    }
}

#[test]
fn tensors_that_are_not_the_models_are_refused() {
    for engine in engines_here() {
        let context = EngineContext::default();
        let mut plan = plan(engine, &context);
        let x = |items| tensor("x", items, &vec![0.0; items * ITEM]);
        let check = |plan: &mut ImagePlan, inputs, expected: &str| {
            assert_eq!(ask_tensors(plan, inputs), Err(expected.to_owned()), "{}", engine.name());
        };
        check(&mut plan, Vec::new(), "a request has 1 tensor for the input `x`");
        check(&mut plan, vec![x(1), x(1)], "a request has 1 tensor for the input `x`");
        let other = tensor("z", 1, &[0.0; ITEM]);
        check(
            &mut plan,
            vec![x(1), other],
            "the request has a tensor `z`, which is not one of the inputs to send",
        );
        check(&mut plan, vec![x(3)], "input `x` is f32 [2, 3, 8, 8], but got f32 [3, 3, 8, 8]");
        let bytes = Tensor::new("x", ElementType::U8, vec![2, 3, 8, 8], vec![0; 2 * ITEM]).expect("it fits");
        check(&mut plan, vec![bytes], "input `x` is f32 [2, 3, 8, 8], but got u8 [2, 3, 8, 8]");
    }
}

# Each target installs what it lacks (setup.sh), builds, and runs. `make` alone lists them.
MAKEFLAGS += --no-print-directory
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
# What is shown or measured is optimised; `make test` builds in the profile `dev`, which compiles sooner.
xtask = cargo run $(profile) --quiet --package xtask --
demo bench test-long test-boards test-torch test-gpu: profile := --release
.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-long test-boards test-torch test-gpu cross bench clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## install what building and testing need
	@./setup.sh build test cross boards

build: ## the daemon and the command line, optimised
	@./setup.sh build
	@cargo build --release --package orinoco --package orinocod --package orinoco-helper

demo: ## watch it work: a video through a detector, on this machine
	@./setup.sh build demo
	@cargo build --release --package orinoco --package orinocod
	@$(xtask) demo

test: ## everything that CI checks
	@./setup.sh build test cross boards
	@$(xtask) test

test-long: ## many seeds and soaks
	@./setup.sh build test
	@$(xtask) test-long

test-boards: ## on emulated aarch64 boards with cameras, power rails and RDMA (see tests/rig)
	@./setup.sh build cross boards
	@$(xtask) boards test

test-torch: ## the Python package and the torch.distributed back end; installs PyTorch unless ORINOCO_PYTHON names a Python with it
	@./setup.sh build torch cross
	@$(xtask) test-torch

test-gpu: ## tests that need an NVIDIA GPU: kernels, pipelines, models on ort-cuda; ORT_DYLIB_PATH names an ONNX Runtime built with CUDA
	@./setup.sh build test
	@$(xtask) test-gpu

cross: ## aarch64 binaries for JetPack 5, 6 and 7, checked
	@./setup.sh build cross
	@cross/build.sh

bench: ## benchmark a pipeline compared with its engine alone
	@./setup.sh build demo
	@$(xtask) bench

clean: ## remove what was built (caches stay: see cross/README.md)
	@cargo clean --quiet

# Every target is one script, so that `sh scripts/X` works where make is missing.
#   make demo [DATA=DIR] [PORT=N]   the whole story on this machine; again = seconds
#   make test                       every test there is
export DATA PORT
.PHONY: build demo demo-break demo-stop test quick bench check-long sim-long format
build:      ; @sh scripts/build
demo:       ; @sh scripts/demo
demo-break: ; @sh scripts/demo-break
demo-stop:  ; @sh scripts/demo-stop
test:       ; @sh scripts/test
quick:      ; @sh scripts/test --quick
bench:      ; @sh scripts/bench $(OF)
check-long: ; @sh scripts/test --long
sim-long:   ; @sh scripts/build && build/anychip-sim --seed $${SEED:-10000} --seeds $${SEEDS:-2000}
format:     ; @git ls-files '*.cc' '*.h' | xargs clang-format -i

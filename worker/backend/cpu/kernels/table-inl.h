// The table of an instruction set. Included after all loops but those of matrix tiles and tables,
// and after part_functions-inl.h, in the namespace around.

void Matmul(const MatmulArgs& args, size_t first, size_t end) {
  const WeightFormat format = args.weights.format;
  if (format < WeightFormat::kInt8) {
    MultiplyFloats(args, first, end);
  } else if (!args.int8) {
    MultiplyWide(args, first, end);
  } else if (IsSuper(format)) {
    MultiplySupers(args, first, end);
  } else if (IsCodes(format)) {
    MultiplyCodes(args, first, end);
  } else {
    MultiplyInts(args, first, end);
  }
}

constexpr Kernels MakeTable(const char* isa) {
  return Kernels{.isa = isa,
                 .block_rows = kBlockRows,
                 .few_rows_panels = kTiling.prefetching.quant_panels,
                 .matmul = Matmul,
                 .pack_rows = PackRows,
                 .quantize_rows = QuantizeRows,
                 .quantize_part = QuantizePart,
                 .quantized_row_bytes = QuantizedRowBytes,
                 .rms_norm = RmsNorm,
                 .swiglu = GatedProduct<SiluLanes>,
                 .geglu = GatedProduct<GeluLanes>,
                 .clamped_swiglu = ClampedProduct,
                 .soft_cap = SoftCapAll,
                 .attend = Attend,
                 .merge_spans = MergeSpans,
                 .append_kv = AppendKv,
                 .exp = ExpAll,
                 .to_f16 = ToF16All,
                 .from_f16 = FromHalfAll<F16>,
                 .from_bf16 = FromHalfAll<BF16>,
                 .read_all = ReadAll,
                 .run_fmas = RunFmas,
                 .run_dots = RunDots};
}

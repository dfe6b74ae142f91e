// The table of an instruction set. Included after all loops but those of matrix tiles and tables.

void Matmul(const MatmulArgs& args, size_t first, size_t end) {
  if (IsCodes(args.weights.format)) {
    MultiplyCodes(args, first, end);
    return;
  }
  if (args.weights.format == WeightFormat::kSuper2) {
    if (args.int8) {
      MultiplyRows<Super2Product>(args, first, end);
    } else {
      MultiplyRows<Super2DequantProduct>(args, first, end);
    }
    return;
  }
  if (args.int8) {
    MultiplyQuantized<QuantProduct, SuperProduct>(args, first, end);
    return;
  }
  switch (args.weights.format) {
    case WeightFormat::kF32:
      Multiply<FloatProduct<float>>(args, first, end);
      return;
    case WeightFormat::kF16:
      Multiply<FloatProduct<F16>>(args, first, end);
      return;
    case WeightFormat::kBF16:
      Multiply<FloatProduct<BF16>>(args, first, end);
      return;
    default:
      MultiplyQuantized<DequantProduct, SuperDequantProduct>(args, first, end);
  }
}

constexpr Kernels MakeTable(const char* isa) {
  return Kernels{.isa = isa,
                 .block_rows = kBlockRows,
                 .few_rows_panels = kTiling.asking.quant_panels,
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

package mars.bench;

import java.io.IOException;
import java.util.Arrays;
import java.util.Set;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.formats.json.JsonFormatFactory;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.format.DecodingFormat;
import org.apache.flink.table.connector.format.ProjectableDecodingFormat;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DeserializationFormatFactory;
import org.apache.flink.table.factories.DynamicTableFactory;
import org.apache.flink.table.types.DataType;
import org.apache.flink.util.Collector;

/**
 * The format `json-lines`: many JSON objects in one Kafka message, one a line. Flink has none, and
 * without it could not be measured on such a topic; each line goes through Flink's own JSON format.
 */
public final class JsonLinesFormatFactory implements DeserializationFormatFactory {
  private final JsonFormatFactory json = new JsonFormatFactory();

  @Override
  public String factoryIdentifier() {
    return "json-lines";
  }

  @Override
  public Set<ConfigOption<?>> requiredOptions() {
    return json.requiredOptions();
  }

  @Override
  public Set<ConfigOption<?>> optionalOptions() {
    return json.optionalOptions();
  }

  @Override
  public DecodingFormat<DeserializationSchema<RowData>> createDecodingFormat(
      DynamicTableFactory.Context context, ReadableConfig options) {
    return new Lines(
        (ProjectableDecodingFormat<DeserializationSchema<RowData>>)
            json.createDecodingFormat(context, options));
  }

  private static final class Lines
      implements ProjectableDecodingFormat<DeserializationSchema<RowData>> {
    private final ProjectableDecodingFormat<DeserializationSchema<RowData>> json;

    Lines(ProjectableDecodingFormat<DeserializationSchema<RowData>> json) {
      this.json = json;
    }

    @Override
    public DeserializationSchema<RowData> createRuntimeDecoder(
        DynamicTableSource.Context context, DataType type, int[][] projections) {
      return new Splitting(json.createRuntimeDecoder(context, type, projections));
    }

    @Override
    public ChangelogMode getChangelogMode() {
      return json.getChangelogMode();
    }
  }

  private static final class Splitting implements DeserializationSchema<RowData> {
    private static final long serialVersionUID = 1L;
    private final DeserializationSchema<RowData> line;

    Splitting(DeserializationSchema<RowData> line) {
      this.line = line;
    }

    @Override
    public void open(InitializationContext context) throws Exception {
      line.open(context);
    }

    @Override
    public RowData deserialize(byte[] message) {
      throw new UnsupportedOperationException("a message is many rows");
    }

    @Override
    public void deserialize(byte[] message, Collector<RowData> rows) throws IOException {
      int start = 0;
      for (int at = 0; at <= message.length; at++) {
        if (at == message.length || message[at] == '\n') {
          if (at > start) {
            line.deserialize(Arrays.copyOfRange(message, start, at), rows);
          }
          start = at + 1;
        }
      }
    }

    @Override
    public boolean isEndOfStream(RowData row) {
      return false;
    }

    @Override
    public TypeInformation<RowData> getProducedType() {
      return line.getProducedType();
    }
  }
}

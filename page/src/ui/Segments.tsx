//! A choice of a few, as radio buttons that look like one control.

import { useId } from "preact/hooks";

export function Segments(props: {
  label: string;
  options: [string, string][];
  value: string;
  onChange: (value: string) => void;
}) {
  const name = useId();
  return (
    <fieldset class="segments">
      <legend class="unseen">{props.label}</legend>
      {props.options.map(([value, label]) => (
        <label>
          <input
            type="radio"
            name={name}
            value={value}
            checked={value === props.value}
            onChange={() => props.onChange(value)}
          />
          <span>{label}</span>
        </label>
      ))}
    </fieldset>
  );
}
